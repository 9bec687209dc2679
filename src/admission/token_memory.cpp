#include "admission/token_memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "admission/expert_memory.h"
#include "base/fail.h"
#include "base/stop.h"
#include "completion/options.h"
#include "completion/streamed_experts.h"
#include "diffusion/sizes.h"
#include "load/meta_weights.h"
#include "parallel/decode.h"
#include "runtime/launch.h"
#include "tensor/run_watcher.h"
#include "tensor/uncounted.h"
#include "tessera/words.h"

namespace tessera::admission {
namespace {

int64_t tokens_of(const completion::TokenRun& run) {
  return std::accumulate(run.lengths.begin(), run.lengths.end(), int64_t{0});
}

// A rank's part of the network, on meta.
std::shared_ptr<const nn::TokenModel> network_of(const runtime::ModelState& state,
                                                 const RunOptions& options,
                                                 const nn::Weights& weights, int rank,
                                                 const completion::TokenRun& run) {
  const models::TokenSpec& spec = state.language->spec();
  return spec.make(weights, completion::token_portion(state, options, rank, run.experts > 0),
                   runtime::dtype_of(options), spec.block_causal ? run.block : 0);
}

/// Tokens of each sequence in a pass, and the decided ones; for executed passes, the number of
/// represented passes of the run.
struct TypicalPass {
  std::vector<nn::Range> body;
  int64_t decided = 0;
  int64_t canvas = 0;  // vocabulary of a denoised canvas; 0: text or masks
  double passes = 1;
};

sample::TokenPass pass_of(const TypicalPass& kind) {
  sample::TokenPass pass;
  for (size_t r = 0; r < kind.body.size(); ++r) {
    const nn::Range& body = kind.body[r];
    if (body.size() == 0) continue;  // ended
    const auto sequence = static_cast<int>(r);
    pass.view.sequences.push_back(sequence);
    pass.view.body.push_back({sequence, body});
    pass.view.lengths.push_back(body.end);
    // In two parts, like separated masks: their rows are copied.
    const nn::Range open{std::max(body.begin, body.end - kind.decided), body.end};
    const int64_t first = std::min(open.begin + 1, open.end);
    if (first > open.begin) pass.decide.push_back({sequence, {open.begin, first}});
    if (first < open.end) pass.decide.push_back({sequence, {first, open.end}});
    if (kind.canvas > 0) pass.view.canvas.push_back(body.begin);
  }
  if (kind.canvas > 0) {
    pass.earlier.tokens = pass.view.body;
    pass.earlier.logits = tensor::Tensor::empty({nn::token_count(pass.view.body), kind.canvas},
                                                nn::DType::f32, tensor::Device::meta);
  }
  pass.ids.resize(static_cast<size_t>(nn::token_count(pass.view.body)));
  return pass;
}

// The tokens of each sequence that the first pass adds to the cache.
std::vector<nn::Range> prefilled(const completion::TokenRun& run) {
  std::vector<nn::Range> body;
  for (size_t r = 0; r < run.prefill.size(); ++r)
    body.push_back({run.kept_tokens(r), run.prefill[r]});
  return body;
}

// The prompts, then each canvas: denoised, then read as text before the next.
std::vector<TypicalPass> canvases_of(const completion::TokenRun& run) {
  std::vector<nn::Range> body = prefilled(run);
  std::vector<TypicalPass> passes{{body, 0}};
  for (bool more = true; more;) {
    more = false;
    for (size_t r = 0; r < body.size(); ++r) {
      body[r] = {body[r].end, std::min(body[r].end + run.block, run.lengths[r])};
      more = more || body[r].size() > 0;
    }
    if (!more) break;
    if (passes.size() > 1) passes.push_back({passes.back().body, 0});
    passes.push_back({body, run.decided, run.canvas});
  }
  return passes;
}

// Over all tokens, twice, because the first pass's memory stays for the second; or the first of a
// block cache, then block by block.
std::vector<TypicalPass> passes_of(const completion::TokenRun& run) {
  if (run.canvas > 0) return canvases_of(run);
  if (run.prefill.empty()) {
    std::vector<nn::Range> body;
    for (const int64_t length : run.lengths) body.push_back({0, length});
    return {{body, run.decided}, {body, run.decided}};
  }
  std::vector<nn::Range> body = prefilled(run);
  std::vector<TypicalPass> passes;
  if (!run.joined) passes.push_back({body, 0});
  for (bool more = true, first = true; more; first = false) {
    more = false;
    for (size_t r = 0; r < body.size(); ++r) {
      const int64_t begin = body[r].end, end = std::min(begin + run.block, run.lengths[r]);
      const int64_t again = !run.joined || end == begin ? 0
                            : first                     ? begin - run.kept_tokens(r)
                                                        : run.block;
      body[r] = {begin - again, end};
      more = more || body[r].size() > 0;
    }
    if (more) passes.push_back({body, run.decided});
  }
  return passes;
}

bool as_wide(const TypicalPass& a, const TypicalPass& b) {
  return a.decided == b.decided && a.canvas == b.canvas &&
         std::equal(a.body.begin(), a.body.end(), b.body.begin(),
                    [](const nn::Range& x, const nn::Range& y) { return x.size() == y.size(); });
}

// Neighbours with equally many tokens differ in their visible tokens only, with evenly growing
// work: the last is the largest, first and last give the mean.
std::vector<TypicalPass> typical_passes(const completion::TokenRun& run) {
  const std::vector<TypicalPass> passes = passes_of(run);
  std::vector<TypicalPass> typical;
  for (size_t first = 0, end = 0; first < passes.size(); first = end) {
    while (end < passes.size() && as_wide(passes[first], passes[end])) ++end;
    typical.push_back(passes[first]);
    if (end - first == 1) continue;
    typical.push_back(passes[end - 1]);
    for (size_t i : {1, 2}) typical[typical.size() - i].passes = double(end - first) / 2;
  }
  return typical;
}

double passes_in(const std::vector<TypicalPass>& typical) {
  double passes = 0;
  for (const TypicalPass& kind : typical) passes += kind.passes;
  return passes;
}

int64_t most_at_once(const completion::TokenRun& run) {
  int64_t most = 0;
  for (const TypicalPass& kind : typical_passes(run))
    most = std::max(most, nn::token_count(pass_of(kind).view.body));
  return most;
}

// As a run that takes over conversations of earlier requests, one after another.
void adopt_kept(const completion::TokenRun& run, const nn::Geometry& geometry, nn::DType dtype,
                nn::KvCache& cache) {
  for (size_t r = 0; r < run.kept.size(); ++r) {
    const auto [tokens, slots] = run.kept[r];
    if (tokens == 0) continue;
    nn::KvCache::Tables tables;
    {
      const tensor::Uncounted before(tensor::Counts::work);  // counted at its adoption
      nn::KvCache previous_cache(geometry, {{0, slots}});
      for (size_t site = 0; site < geometry.attention.size(); ++site) {
        const nn::AttentionSite& at = geometry.attention[site];
        const auto rows = tensor::Tensor::empty({1, int64_t{at.kv_heads} * at.head_dim}, dtype,
                                                tensor::Device::meta);
        previous_cache.write(static_cast<int>(site), {{0, {0, 1}}}, rows, rows, 0);
      }
      tables = previous_cache.release();
    }
    cache.adopt(static_cast<int>(r), tokens, std::move(tables));
  }
}

/// A rank's work, with passes that represent several.
class PassCost {
 public:
  PassCost(const tensor::Scope& rank, const comm::Communicator* world)
      : rank_(rank), world_(world) {}
  void count(double passes) {
    const double flops = rank_.meter->total().flops;
    const auto sent_bytes = world_ ? double(world_->ledger().total().bytes) : 0;
    flops_ += passes * (flops - flops_before_);
    sent_ += passes * (sent_bytes - sent_before_);
    flops_before_ = flops;
    sent_before_ = sent_bytes;
  }
  Report::Rank all() const {
    return {runtime::peaks_of(*rank_.memory), flops_, static_cast<int64_t>(sent_)};
  }

 private:
  const tensor::Scope& rank_;
  const comm::Communicator* world_;
  double flops_ = 0, sent_ = 0, flops_before_ = 0, sent_before_ = 0;
};

// Experts read on demand leave no reserve: all tokens choose a single rank's experts,
void route_to_one_expert(const runtime::ModelState& state, const RunOptions& options,
                         const completion::TokenRun& run, runtime::ModelState& stage) {
  std::vector<double> load =
      uneven_load(options.plan, state.language->geometry(runtime::dtype_of(options)), &run.rule);
  if (!load.empty()) stage.workers.assumptions.expert_load = std::move(load);
}

// and each rank may be this rank.
void crowd_each(const RunOptions& options, DryRun& need) {
  if (!cluster::Ranks::of(options).all_here() || options.plan.expert == 1) return;
  int64_t most = 0;
  for (const Inspection::Rank& rank : need.ranks) most = std::max(most, rank.total - rank.weights);
  need.process = std::max(need.process, need.weights + options.plan.world() * most);
}

// Without experts read on demand.
DryRun dry_run_others(const runtime::ModelState& state, const RunOptions& options,
                      const completion::TokenRun& run, Passes passes) {
  require(tokens_of(run) <= diffusion::kMostTokens, ErrorCode::memory,
          "a run of {} tokens is too long for any machine: use fewer or shorter prompts",
          tokens_of(run));
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, options, stage);
  if (run.experts > 0) route_to_one_expert(state, options, run, stage);
  const runtime::RunMeters meters(stage.workers.ranks.size());
  const tensor::BindScope bind(stage.workers.scope(-1, &meters));  // outside the run's memory
  runtime::NetworkCache<nn::TokenModel> loaded;
  std::vector<std::shared_ptr<const nn::TokenModel>> networks;
  for (int r = 0; r < options.plan.world(); ++r)
    networks.push_back(loaded.get(0, r, stage.workers.scope(r, &meters).memory, [&] {
      return network_of(state, options, state.language->on_meta(), r, run);
    }));
  const std::vector<TypicalPass> typical =
      passes == Passes::all ? passes_of(run) : typical_passes(run);
  DryRun need;
  need.ranks.resize(networks.size());
  const std::stop_token& stop = base::current_stop();
  runtime::launch_ranks(stage, meters, stop, [&](comm::Communicator* world) {
    const auto rank = static_cast<size_t>(world ? world->rank() : 0);
    const nn::TokenModel& model = *networks[rank];
    parallel::Residence weights{.for_gpu = options.device.kind != DeviceKind::cpu};
    if (run.experts > 0) weights.experts = completion::expert_cache(state, run.experts, true);
    parallel::Setup setup(options.plan, model.geometry(), {.text = {{run.lengths, run.rule}}},
                          world, weights);
    std::map<int, nn::Range> ranges;
    for (size_t r = 0; r < run.lengths.size(); ++r) ranges[static_cast<int>(r)] = nn::kAllTokens;
    setup.policy->restrict_to(ranges);
    std::vector<tensor::Tensor> routed;  // kept by a run until a pass is counted
    setup.experts->log().watch(
        [&](const nn::MoeWork& work) { routed.push_back(work.routing.ids); });
    const tensor::Scope scope = stage.workers.scope(static_cast<int>(rank), &meters);
    adopt_kept(run, model.geometry(), runtime::dtype_of(options), setup.cache->slots());
    PassCost cost(scope, world);
    for (const TypicalPass& kind : typical) {
      const sample::TokenPass pass = pass_of(kind);
      if (pass.ids.empty()) continue;
      base::check_stop(stop);
      tensor::watch_part("step", static_cast<int>(&kind - typical.data()));
      parallel::forward(model, pass, setup, {});
      cost.count(kind.passes);
      routed.clear();
    }
    tensor::watch_part("");
    setup.finish();
    cost.count(1);
    need.ranks[rank] = predicted(
        cost.all(), parallel::experts_of(options.plan, model.geometry(), static_cast<int>(rank)),
        nn::token_count(setup.view().body), static_cast<int>(passes_in(typical)));
  });
  need.work = mean_work(meters.all->entries(), static_cast<int>(typical.size()));
  const load::MetaWeights weights = state.language->on_meta();
  add_process(
      options, [&](int rank) { return network_of(state, options, weights, rank, run); }, need);
  if (run.experts > 0) crowd_each(options, need);
  return need;
}

completion::TokenRun sketched(const models::TokenSpec& spec, const TokenForecast& forecast,
                              int prompts) {
  const auto count = static_cast<size_t>(prompts);
  completion::TokenRun run{{}, spec.block, spec.block};
  const int64_t blocks = (forecast.answer + spec.block - 1) / spec.block;
  run.lengths.assign(count,
                     forecast.prompt + (spec.canvas ? blocks * spec.block : forecast.answer));
  if (spec.canvas) run.canvas = spec.vocabulary;
  if (spec.canvas || spec.block_causal)
    run.prefill.assign(count,
                       spec.canvas ? forecast.prompt : forecast.prompt / spec.block * spec.block);
  return run;
}

}  // namespace

TokenForecast predict_tokens(const runtime::ModelState& state, const TokenSketch& sketch) {
  completion::check_token_plan(state);
  const models::TokenSpec& spec = state.language->spec();
  TokenForecast forecast{.block = spec.block, .canvas = spec.canvas};
  forecast.answer = sketch.answer > 0
                        ? sketch.answer
                        : std::min<int64_t>(state.language->max_tokens(), spec.context / 2);
  forecast.prompt = sketch.prompt > 0 ? sketch.prompt
                                      : std::clamp<int64_t>(spec.context - forecast.answer, 1, 128);
  require(forecast.prompt <= spec.context - forecast.answer, ErrorCode::usage,
          "{} tokens of prompt and {} of answer: the model's context has {}", forecast.prompt,
          forecast.answer, spec.context);
  const completion::TokenRun run = sketched(spec, forecast, sketch.prompts);
  forecast.ranks = dry_run_tokens(state, state.options, run).ranks;
  for (const TypicalPass& kind : typical_passes(run)) {
    if (pass_of(kind).ids.empty()) continue;
    forecast.passes.push_back({kind.passes, kind.decided == 0});
  }
  // A model without a cache computes all tokens in each pass; two were tried.
  if (run.prefill.empty()) {
    const double blocks = std::ceil(double(forecast.answer) / spec.block);
    for (TokenForecast::Pass& pass : forecast.passes)
      pass.count = blocks / double(forecast.passes.size());
  }
  return forecast;
}

DryRun dry_run_tokens(const runtime::ModelState& state, const RunOptions& options,
                      const completion::TokenRun& run, Passes passes) {
  DryRun rest = dry_run_others(state, options, run, passes);
  if (run.experts == 0) return rest;
  const ExpertMemory expert_memory(state, options);
  return expert_memory.beside(std::move(rest), run.experts);
}

namespace {

// Routed experts of the rank with the most, within reach of a pass's tokens in a
// layer.
int64_t most_of_a_layer(const nn::Geometry& geometry, const ExpertMemory& expert_memory,
                        const completion::TokenRun& run) {
  return std::min(expert_memory.most() / std::ssize(geometry.experts),
                  most_at_once(run) * parallel::most_slots(geometry, &run.rule));
}

// Alternatives to a plan without reads of experts on demand; "": not needed.
std::string who_reads(const runtime::ModelState& state) {
  const Plan& plan = state.options.plan;
  if (parallel::reads_experts(plan))
    return state.quantises_experts() ? "; experts of a quantised folder can be read while it runs"
                                     : "";
  return plan.tensor > 1 ? "; ranks of tensor=N do not read experts while they run, one rank or "
                           "those of expert=N do"
                         : "; ranks of moe=fused do not read experts while they run, those of "
                           "moe=bulk do";
}

std::string problem_of(const runtime::ModelState& state, const completion::TokenRun& run,
                       const DryRun& need, const MemoryLimit& room) {
  std::string remedy = as_processes(state.options, need, 0, room);
  if (remedy.empty()) remedy = "spread it over machines (`plan` expert=N or tensor=N)";
  for (const Precision smaller : {Precision::bf16, Precision::int8}) {
    RunOptions options = state.options;
    options.precision = smaller;
    completion::TokenRun whole = run;
    whole.experts = 0;
    const int64_t bytes = dry_run_tokens(state, options, whole).process;
    if (bytes > room.bytes || bytes >= need.process) continue;
    remedy = fmt::format("`dtype` {} would need {}", word_of(smaller), amount(double(bytes)));
    break;
  }
  if (state.options.memory_budget > 0)
    remedy = fmt::format("it fits into {}; else {}", budget_of(need.process), remedy);
  remedy += who_reads(state);
  return too_large(run.experts == 0
                       ? "this run"
                       : fmt::format("this run, with the {} experts that a pass may ask of a layer "
                                     "and the others left in the folder,",
                                     run.experts),
                   need.process, need.weights, room, remedy);
}

std::string note_of(const runtime::ModelState& state, const ExpertMemory& expert_memory,
                    int64_t experts, int64_t weights, const MemoryLimit& room) {
  const std::string stay =
      state.options.plan.expert > 1
          ? fmt::format("each rank keeps {} of its {} in memory", experts, expert_memory.most())
          : fmt::format("{} of {} stay in memory", experts, expert_memory.most());
  return fmt::format(
      "reads experts while it runs ({} of weights) to stay within {}: {}, the others are read from "
      "the folder when tokens go to them",
      amount(double(weights)), amount(double(room.bytes)), stay);
}

}  // namespace

TokenFit fit_tokens(const runtime::ModelState& state, completion::TokenRun& run) {
  const MemoryLimit room = room_of(state);
  TokenFit fit{dry_run_tokens(state, state.options, run)};
  if (fit.need.process <= room.bytes) return fit;
  const nn::Geometry geometry = state.language->geometry(state.dtype());
  if (!geometry.experts.empty() && completion::may_stream_experts(state)) {
    const ExpertMemory expert_memory(state, state.options);
    completion::TokenRun reading = run;
    reading.experts = most_of_a_layer(geometry, expert_memory, run);
    const DryRun rest = dry_run_others(state, state.options, reading, Passes::largest);
    const int64_t least = rest.process + expert_memory.bytes(reading.experts),
                  whole = fit.need.weights;
    if (reading.experts < expert_memory.most() && least < fit.need.process) {
      while (reading.experts < expert_memory.most() &&
             rest.process + expert_memory.bytes(reading.experts + 1) <= room.bytes)
        ++reading.experts;
      run.experts = reading.experts;
      fit.need = expert_memory.beside(rest, run.experts);
      if (least <= room.bytes) {
        fit.note = note_of(state, expert_memory, run.experts, whole, room);
        return fit;
      }
    }
  }
  fit.problem = problem_of(state, run, fit.need, room);
  run.experts = 0;
  return fit;
}

namespace {

// The memory of a run like an earlier fitting run, if available without other models.
bool takes_at_once(const runtime::ModelState& state, const std::array<int64_t, 2>& bytes,
                   runtime::MemoryReservation* reservation) {
  std::vector<runtime::MemoryReservation::ModelMemory> others;
  return !reservation || reservation->take(bytes[0], bytes[1], room_of(state).bytes, others,
                                           runtime::MemoryReservation::Idle::stay);
}

}  // namespace

std::string plan_tokens(runtime::ModelState& state, completion::TokenRun& run,
                        runtime::MemoryReservation* reservation) {
  const std::array<int64_t, 3> size{tokens_of(run), most_at_once(run),
                                    static_cast<int64_t>(run.lengths.size()) * run.decided};
  {
    const std::lock_guard lock(state.admitted.expected.mutex);
    const auto& expected_size = state.admitted.expected.size;
    const bool usual = run.rule.method == nn::SelectionRule::Method::vanilla && run.kept.empty();
    if (usual && size[0] <= expected_size[0] && size[1] <= expected_size[1] &&
        size[2] <= expected_size[2] &&
        takes_at_once(state, state.admitted.expected.bytes, reservation))
      return "";
  }
  TokenFit fit = fit_tokens(state, run);
  if (!fit.problem.empty()) fail(ErrorCode::memory, "{}", fit.problem);
  if (reservation) take_room(state, "this run", fit.need.process, fit.need.weights, *reservation);
  if (run.experts > 0) return std::move(fit.note);
  const std::lock_guard lock(state.admitted.expected.mutex);
  state.admitted.expected.size = size;
  state.admitted.expected.bytes = {fit.need.process, fit.need.weights};
  return "";
}

}  // namespace tessera::admission
