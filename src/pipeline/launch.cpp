#include "pipeline/launch.h"

#include <numeric>
#include <vector>

#include "base/stop.h"
#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "nn/local_spatial.h"
#include "parallel/spatial/bands.h"
#include "pipeline/agree.h"

namespace tessera::pipeline {

void launch_ranks(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  const std::function<void(comm::Communicator* world)>& rank) {
  const RunOptions& options = state.options;
  const auto run = [&](comm::Communicator* world) {
    const tensor::BindScope bind(state.workers.scope(world ? world->rank() : 0, &meters));
    const base::BindStop halt(world ? std::stop_token() : stop);
    rank(world);
  };
  const int world = options.plan.ranks();
  if (world == 1) return run(nullptr);
  if (options.processes) {
    comm::Communicator& ranks = world_of(state.place, *options.processes);
    if (&ranks != options.processes->state().world) return run(&ranks);
    return end_together(ranks, [&](comm::Communicator& request) { run(&request); });
  }
  if (state.device() != tensor::Device::meta)
    return comm::threads::run(world, options.comm_timeout,
                              [&](comm::Communicator& ranks) { run(&ranks); });
  std::vector<tensor::Scope> scopes;
  for (int r = 0; r < world; ++r) scopes.push_back(state.workers.scope(r, &meters));
  comm::simulated::run(scopes, options.comm_timeout,
                       [&](comm::Communicator& ranks) { rank(&ranks); });
}

void launch_bands(
    const ModelState& state, const RunMeters& meters, const std::stop_token& stop, int64_t chunk,
    const std::function<void(nn::Spatial& spatial, comm::Communicator* ranks)>& rank) {
  const int shares = state.options.plan.vae;
  if (shares == 1) {
    nn::LocalSpatial whole(chunk);
    return rank(whole, nullptr);
  }
  launch_ranks(state, meters, stop, [&](comm::Communicator* world) {
    const bool mine = world->rank() < shares;
    std::vector<int> members(mine ? static_cast<size_t>(shares) : 1, world->rank());
    if (mine) std::iota(members.begin(), members.end(), 0);
    const auto ranks = world->group(members);  // all of the world make one
    if (!mine) return;
    const bool heeds = world->rank() == 0 || state.options.processes;
    parallel::Bands bands(*ranks, heeds ? stop : std::stop_token(), chunk);
    rank(bands, ranks.get());
  });
}

}  // namespace tessera::pipeline
