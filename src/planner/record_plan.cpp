#include "planner/record_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "admission/dry_run.h"
#include "admission/memory_plan.h"
#include "base/fail.h"
#include "runtime/choose_stages.h"

namespace tessera::planner {
namespace {

// Returns the period of the ranks' work, in steps.
int period_of(const Plan& plan) {
  const int64_t stride = plan.conditional == KeptSlot::all ? 1 : std::max(plan.stride, 1);
  return static_cast<int>(std::lcm(stride, int64_t{std::max(plan.sync_every, 1)}));
}

constexpr int kBrief = 2;  // the first step may differ from a later step
constexpr int kAhead = 3;  // first and last steps, and a step between them

// Returns whether steps do not depend on earlier ones, unless the sampler's do.
bool forgets(const Plan& plan, const diffusion::Job& job) {
  return !plan.stale() && !job.planned.step_cache && !plan.vae_apart && !job.planned.routing;
}

// A step prefetches for its successor: the first and the last step differ from the others.
bool looks_ahead(const Plan& plan) { return plan.shard > 1 || plan.pipefusion > 1; }

double step_flops(const Recording& recording, size_t rank, size_t step) {
  double flops = 0;
  for (const Event& event : recording.ranks[rank].steps[step])
    if (event.kind == Event::Kind::op) flops += recording.ops[event.id].flops;
  return flops;
}

RecordedPlan record_steps(runtime::ModelState& state, const diffusion::Job& job, int steps,
                          int all) {
  const Plan& plan = state.options.plan;
  Recorder recorder(plan.ranks());
  std::vector<Inspection::Rank> ranks;
  {
    const tensor::BindRunWatcher watch(recorder.root());
    ranks = plan.vae_apart ? admission::dry_run(state, job).ranks
                           : admission::dry_run_ranks(state, job, steps);
  }
  RecordedPlan made{recorder.take(job.planned.sampler->steps(), period_of(plan))};
  made.steady = made.recording.steady();
  for (size_t r = 0; r < ranks.size(); ++r) {
    double flops = ranks[r].flops;  // a mean over steps and preparation
    if (steps < all && (made.steady || steps == kAhead)) {
      const double sum = steps == kAhead ? std::round(flops * steps) : flops * steps;
      flops = (sum + step_flops(made.recording, r, 1) * (all - steps)) / all;
    }
    made.rank_bytes = std::max(made.rank_bytes, ranks[r].total);
    made.flops = std::max(made.flops, flops);
  }
  return made;
}

}  // namespace

RecordedPlan record_plan(runtime::ModelState& state, const diffusion::Job& job, const Plan& plan,
                         bool brief, bool repeats) {
  const auto found = problems(plan, plan.ranks());
  require(found.empty(), ErrorCode::plan, "{}", fmt::join(found, "; "));
  state.options.plan = plan;
  runtime::choose_stages(state);
  const int all = job.planned.routing ? job.planned.sampler->steps()
                                      : admission::steps_until_they_repeat(plan, job);
  const bool forgetful = forgets(plan, job), ahead = looks_ahead(plan);
  if (brief && forgetful && !ahead && all > kBrief) {
    RecordedPlan made = record_steps(state, job, kBrief, all);
    made.repeats = made.steady;
    if (made.steady) made.recording.repeat(all);
    if (made.steady) return made;
  }
  const bool three = brief && forgetful && ahead && repeats && all > kAhead;
  RecordedPlan made = record_steps(state, job, three ? kAhead : all, all);
  if (three) made.recording.repeat(all);
  made.steady = made.steady || !forgetful || ahead || all <= kBrief;
  return made;
}

RecordedPlan record_decode(runtime::ModelState& state, const diffusion::Job& job, int ranks,
                           double room) {
  Recorder recorder(ranks);
  RecordedPlan made;
  if (ranks > 1) {
    state.options.plan = {};
    state.options.plan.data = state.options.plan.vae = ranks;
    std::vector<Inspection::Rank> held(static_cast<size_t>(ranks));
    const tensor::BindRunWatcher watch(recorder.root());
    admission::dry_run_bands(state, job, held);
    for (const Inspection::Rank& rank : held)
      made.rank_bytes = std::max(made.rank_bytes, rank.decode);
  } else {
    state.options.plan = {};
    const tensor::BindRunWatcher watch(recorder.root());
    made.rank_bytes = admission::dry_run_decode(state, job, job.admitted.tiles).peak;
    if (double(made.rank_bytes) > room && !job.admitted.tiles) {
      recorder.take(0, 1);
      made.rank_bytes = admission::dry_run_decode(state, job, admission::vae_tiles(state, 0)).peak;
    }
  }
  made.recording = recorder.take(0, 1);
  return made;
}

}  // namespace tessera::planner
