#include "pipeline/token_memory.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "parallel/decode.h"

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
int64_t weights_of(const ModelState& state, DType dtype, std::optional<DType> experts) {
  const Processes* const processes = state.options.processes;
  nn::Portion portion =
      parallel::portion_of(processes ? state.options.plan : Plan{}, state.language->geometry(dtype),
                           processes ? processes->rank() : 0);
  portion.expert_dtype = experts;
  const Rehearsal rehearsal;
  const auto part = state.language->recipe().make(load::MetaWeights(), portion, dtype, 0);
  return rehearsal.scope.memory->peak(tensor::MemoryClass::weights);
}

// Ranks that share this machine's memory.
int64_t sharing(const ModelState& state) {
  return state.options.processes ? std::max(1, state.options.processes->on_this_machine()) : 1;
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
  sample::TokenPass pass{.ids = std::vector<int32_t>(static_cast<size_t>(tokens))};
  for (size_t r = 0; r < run.lengths.size(); ++r) {
    const int64_t length = run.lengths[r];
    pass.view.rows.push_back(static_cast<int>(r));
    pass.view.body.push_back({static_cast<int>(r), {0, length}});
    pass.view.lengths.push_back(length);
    pass.decide.push_back(
        {static_cast<int>(r), {std::max<int64_t>(0, length - run.decided), length}});
  }
  parallel::Setup setup({}, model->geometry(), {.text = {{run.lengths}}});
  parallel::forward(*model, pass, setup, {});
  need.kv = rehearsal.scope.memory->peak(tensor::MemoryClass::kv);
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
