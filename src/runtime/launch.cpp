#include "runtime/launch.h"

#include <vector>

#include "base/stop.h"
#include "cluster/agree.h"
#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"

namespace tessera::runtime {

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
    return cluster::end_together(ranks, [&](comm::Communicator& request) { run(&request); });
  }
  if (state.device() != tensor::Device::meta)
    return comm::threads::run(world, options.comm_timeout,
                              [&](comm::Communicator& ranks) { run(&ranks); });
  std::vector<tensor::Scope> scopes;
  for (int r = 0; r < world; ++r) scopes.push_back(state.workers.scope(r, &meters));
  comm::simulated::run(scopes, options.comm_timeout,
                       [&](comm::Communicator& ranks) { rank(&ranks); });
}

}  // namespace tessera::runtime
