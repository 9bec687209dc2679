#include "pipeline/token_memory.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "parallel/language.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;

constexpr int64_t kMostTokens = int64_t{1} << 26;

// Sums of memory and work of what happens while it lives.
struct Rehearsal {
  tensor::Scope scope;
  std::optional<tensor::BindScope> bound;
  Rehearsal() {
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    scope.meter = std::make_shared<tensor::Meter>();
    bound.emplace(scope);
  }
};

// Of this process: its rank's part, or those of all ranks that are its threads.
nn::Portion portion_of(const ModelState& state, std::optional<DType> experts) {
  const RunOptions& options = state.options;
  nn::Portion portion{{0, state.language->recipe().blocks()}, true, true};
  if (options.processes)
    portion = parallel::language_portion(options.plan, state.language->geometry(state.dtype()),
                                         options.processes->rank);
  portion.expert_dtype = experts;
  return portion;
}

int64_t weights_of(const ModelState& state, DType dtype, std::optional<DType> experts) {
  const Rehearsal rehearsal;
  const auto part =
      state.language->recipe().make(load::MetaWeights(), portion_of(state, experts), dtype, 0);
  return rehearsal.scope.memory->peak(tensor::MemoryClass::weights);
}

// Ranks that share this machine's memory.
int64_t sharing(const ModelState& state) {
  return state.options.processes ? std::max(1, state.options.processes->on_this_machine) : 1;
}

}  // namespace

TokenNeed token_need(const ModelState& state, const TokenRun& run) {
  const models::TokenRecipe& recipe = state.language->recipe();
  const int64_t tokens = std::accumulate(run.lengths.begin(), run.lengths.end(), int64_t{0});
  require(tokens <= kMostTokens, ErrorCode::memory,
          "a run of {} tokens is too long for any machine: use fewer or shorter prompts", tokens);
  TokenNeed need;
  const Rehearsal rehearsal;
  const load::MetaWeights weights;
  const auto model = recipe.make(weights, {{0, recipe.blocks()}, true, true}, state.dtype(),
                                 recipe.facts().block_causal ? run.block : 0);
  need.parameters = weights.parameters();
  nn::TokenView view{-1, {}, {}, {}, {}};
  nn::Segments decided;
  for (size_t r = 0; r < run.lengths.size(); ++r) {
    const int64_t length = run.lengths[r];
    view.rows.push_back(static_cast<int>(r));
    view.body.push_back({static_cast<int>(r), {0, length}});
    view.lengths.push_back(length);
    decided.push_back({static_cast<int>(r), {std::max<int64_t>(0, length - run.decided), length}});
  }
  nn::KvAttention attention(model->geometry(), nn::rows_of_lengths(run.lengths));
  nn::MoeLayers experts;
  attention.begin_step({.index = 0});
  const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0);
  const auto placement = model->place(view);
  nn::Hidden hidden = model->embed(ids, view);
  for (int b = 0; b < model->geometry().blocks; ++b)
    model->block(b, {}, *placement, hidden, {attention, experts});
  model->logits(hidden, view, decided);
  need.kv = attention.slots().bytes();
  need.flops = rehearsal.scope.meter->total().flops;
  need.work = rehearsal.scope.meter->entries();
  const int64_t ranks = state.options.processes ? 1 : state.options.plan.world();
  need.activations = ranks * (rehearsal.scope.memory->peak() -
                              rehearsal.scope.memory->peak(tensor::MemoryClass::weights));
  need.weights = weights_of(state, state.dtype(), state.expert_dtype());
  need.peak = sharing(state) * (need.weights + need.activations);
  return need;
}

std::string token_problem(const ModelState& state, const TokenNeed& need) {
  const Room room = room_of(state);
  if (need.peak <= room.bytes) return "";
  std::string remedy = "spread it over machines (mpirun with --plan expert=N or tensor=N)";
  const int64_t rest = need.peak - sharing(state) * need.weights;
  const std::pair<const char*, std::optional<DType>> smaller[] = {{"bf16", std::nullopt},
                                                                  {"int8", DType::i8}};
  for (const auto& [name, experts] : smaller) {
    const int64_t peak = rest + sharing(state) * weights_of(state, DType::bf16, experts);
    if (peak > room.bytes || peak >= need.peak) continue;
    remedy = fmt::format("--dtype {} would need {}", name, amount(double(peak)));
    break;
  }
  return fmt::format("this run would need about {} (weights {}, keys and values {}), {}: {}",
                     amount(double(need.peak)), amount(double(need.weights)),
                     amount(double(need.kv)), room.allows, remedy);
}

void plan_tokens(ModelState& state, const TokenRun& run) {
  const auto rows = static_cast<int64_t>(run.lengths.size());
  const int64_t size = std::accumulate(run.lengths.begin(), run.lengths.end(), rows * run.decided);
  if (size <= state.foreseen_tokens) return;
  const std::string problem = token_problem(state, token_need(state, run));
  if (!problem.empty()) fail(ErrorCode::memory, "{}", problem);
  int64_t known = state.foreseen_tokens;
  while (known < size && !state.foreseen_tokens.compare_exchange_weak(known, size)) {
  }
}

}  // namespace tessera::pipeline
