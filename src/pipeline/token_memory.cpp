#include "pipeline/token_memory.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "parallel/decode.h"
#include "pipeline/launch.h"
#include "pipeline/rehearse.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;

constexpr int64_t kMostTokens = int64_t{1} << 26;

// What a rank holds of the network.
nn::Portion portion_of(const ModelState& state, DType dtype, std::optional<DType> experts,
                       int rank) {
  nn::Portion portion =
      parallel::portion_of(state.options.plan, state.language->geometry(dtype), rank);
  portion.expert_dtype = experts;
  return portion;
}

// Of this process: its rank's part, or what all ranks hold that are its threads and share slices.
int64_t weights_of(const ModelState& state, DType dtype, std::optional<DType> experts) {
  const Processes* const processes = state.options.processes;
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const load::MetaWeights weights = state.language->on_meta();
  std::vector<std::unique_ptr<nn::TokenModel>> networks;
  for (int r = 0; r < state.options.plan.world(); ++r)
    if (!processes || processes->rank() == r)
      networks.push_back(
          state.language->spec().make(weights, portion_of(state, dtype, experts, r), dtype, 0));
  return scope.memory->current(tensor::MemoryClass::weights);
}

// All tokens in one pass, which decides the last ones.
sample::TokenPass pass_of(const TokenRun& run) {
  sample::TokenPass pass;
  for (size_t r = 0; r < run.lengths.size(); ++r) {
    const int64_t length = run.lengths[r];
    pass.view.sequences.push_back(static_cast<int>(r));
    pass.view.body.push_back({static_cast<int>(r), {0, length}});
    pass.view.lengths.push_back(length);
    pass.decide.push_back(
        {static_cast<int>(r), {std::max<int64_t>(0, length - run.decided), length}});
  }
  pass.ids.resize(static_cast<size_t>(nn::token_count(pass.view.body)));
  return pass;
}

// The pass on a rank, in its scope.
Inspection::Rank rehearse_rank(const ModelState& state, const sample::TokenPass& pass, int block,
                               comm::Communicator* world) {
  const Plan& plan = state.options.plan;
  const models::TokenSpec& spec = state.language->spec();
  const nn::Portion portion =
      portion_of(state, state.dtype(), state.expert_dtype(), world ? world->rank() : 0);
  std::unique_ptr<nn::TokenModel> model;
  {
    tensor::Scope building = tensor::current_scope();
    building.meter = nullptr;
    const tensor::BindScope bind(building);
    model =
        spec.make(state.language->on_meta(), portion, state.dtype(), spec.block_causal ? block : 0);
  }
  parallel::Setup setup(plan, model->geometry(), {.text = {{pass.view.lengths}}}, world);
  parallel::forward(*model, pass, setup, {});
  setup.finish();
  const tensor::Scope& scope = tensor::current_scope();
  return {.experts = experts_of(plan, model->geometry(), world ? world->rank() : 0),
          .tokens = nn::token_count(setup.view().body),
          .weights = scope.memory->peak(tensor::MemoryClass::weights),
          .activations = scope.memory->peak(tensor::MemoryClass::activations),
          .kv = scope.memory->peak(tensor::MemoryClass::kv),
          .buffers = scope.memory->peak(tensor::MemoryClass::buffers),
          .total = scope.memory->peak(),
          .flops = scope.meter->total().flops,
          .sent = world ? world->ledger().total().bytes : 0};
}

}  // namespace

TokenNeed token_need(const ModelState& state, const TokenRun& run) {
  const models::TokenSpec& spec = state.language->spec();
  const int64_t tokens = std::accumulate(run.lengths.begin(), run.lengths.end(), int64_t{0});
  require(tokens <= kMostTokens, ErrorCode::memory,
          "a run of {} tokens is too long for any machine: use fewer or shorter prompts", tokens);
  ModelState stage;
  set_stage(state, stage);
  const RunMeters meters(stage.workers.ranks.size());
  TokenNeed need;
  {
    const tensor::BindScope bind(stage.workers.scope());
    const load::MetaWeights weights;
    spec.make(weights, spec.whole(), state.dtype(), 0);
    need.parameters = weights.parameters();
    need.ranks.resize(meters.ranks.size());
    launch_ranks(stage, meters, {}, [&](comm::Communicator* world) {
      need.ranks[static_cast<size_t>(world ? world->rank() : 0)] =
          rehearse_rank(state, pass_of(run), run.block, world);
    });
  }
  need.flops = meters.all->total().flops;
  need.work = meters.all->entries();
  for (const Inspection::Rank& rank : need.ranks) need.kv += rank.kv;
  if (state.options.processes) need.kv /= static_cast<int64_t>(need.ranks.size());
  need.weights = weights_of(state, state.dtype(), state.expert_dtype());
  need.peak = process_bytes(need.ranks, state.options, [&] { return need.weights; });
  need.activations = need.peak - need.weights;
  return need;
}

std::string token_problem(const ModelState& state, const TokenNeed& need) {
  const Room room = room_of(state);
  if (need.peak <= room.bytes) return "";
  std::string remedy = "spread it over machines (mpirun with --plan expert=N or tensor=N)";
  const int64_t rest = need.peak - need.weights;
  const std::pair<const char*, std::optional<DType>> smaller[] = {{"bf16", std::nullopt},
                                                                  {"int8", DType::i8}};
  for (const auto& [name, experts] : smaller) {
    const int64_t peak = rest + weights_of(state, DType::bf16, experts);
    if (peak > room.bytes || peak >= need.peak) continue;
    remedy = fmt::format("--dtype {} would need {}", name, amount(double(peak)));
    break;
  }
  return fmt::format("this run would need about {} (weights {}, keys and values {}), {}: {}",
                     amount(double(need.peak)), amount(double(need.weights)),
                     amount(double(need.kv)), room.allows, remedy);
}

void plan_tokens(ModelState& state, const TokenRun& run) {
  const auto sequences = static_cast<int64_t>(run.lengths.size());
  const int64_t size =
      std::accumulate(run.lengths.begin(), run.lengths.end(), sequences * run.decided);
  if (size <= state.foreseen_tokens) return;
  const std::string problem = token_problem(state, token_need(state, run));
  if (!problem.empty()) fail(ErrorCode::memory, "{}", problem);
  int64_t known = state.foreseen_tokens;
  while (known < size && !state.foreseen_tokens.compare_exchange_weak(known, size)) {
  }
}

}  // namespace tessera::pipeline
