#include "planner/foretell.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "admission/memory_plan.h"
#include "admission/rehearse.h"
#include "base/fail.h"
#include "runtime/choose_stages.h"

namespace tessera::planner {
namespace {

// The period of the ranks' work, in steps.
int period_of(const Plan& plan) {
  const int64_t stride = plan.conditional == KeptSlot::all ? 1 : std::max(plan.stride, 1);
  return static_cast<int>(std::lcm(stride, int64_t{std::max(plan.sync_every, 1)}));
}

}  // namespace

Foretold foretell(runtime::ModelState& state, const diffusion::Job& job, const Plan& plan) {
  const auto found = problems(plan, plan.ranks());
  require(found.empty(), ErrorCode::plan, "{}", fmt::join(found, "; "));
  state.options.plan = plan;
  runtime::choose_stages(state);
  Recorder recorder(plan.ranks());
  admission::Rehearsal did;
  {
    const tensor::BindRunWatcher watch(recorder.root());
    did = admission::rehearse(state, job);
  }
  Foretold made{recorder.take(job.sampler->steps(), period_of(plan))};
  for (const Inspection::Rank& rank : did.ranks) {
    made.rank_bytes = std::max(made.rank_bytes, rank.total);
    made.flops = std::max(made.flops, rank.flops);
  }
  return made;
}

Foretold foretell_decode(runtime::ModelState& state, const diffusion::Job& job, int ranks,
                         double room) {
  Recorder recorder(ranks);
  Foretold made;
  if (ranks > 1) {
    state.options.plan = {};
    state.options.plan.data = state.options.plan.vae = ranks;
    std::vector<Inspection::Rank> held(static_cast<size_t>(ranks));
    const tensor::BindRunWatcher watch(recorder.root());
    admission::rehearse_bands(state, job, held);
    for (const Inspection::Rank& rank : held)
      made.rank_bytes = std::max(made.rank_bytes, rank.decode);
  } else {
    state.options.plan = {};
    const tensor::BindRunWatcher watch(recorder.root());
    made.rank_bytes = admission::rehearse_decode(state, job, job.tiles).peak;
    if (double(made.rank_bytes) > room && !job.tiles) {
      recorder.take(0, 1);
      made.rank_bytes = admission::rehearse_decode(state, job, admission::vae_tiles(state, 0)).peak;
    }
  }
  made.recording = recorder.take(0, 1);
  return made;
}

}  // namespace tessera::planner
