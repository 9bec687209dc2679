#include "pipeline/launch.h"

#include "base/stop.h"
#include "comm/threads/launch.h"

namespace tessera::pipeline {

void launch_ranks(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  const std::function<void(comm::Communicator* world)>& rank) {
  const RunOptions& options = state.options;
  const auto run = [&](comm::Communicator* world) {
    const tensor::BindScope bind(state.workers.scope(world ? world->rank() : -1, &meters));
    const base::BindStop halt(world ? std::stop_token() : stop);
    rank(world);
  };
  if (options.plan.world() == 1)
    run(nullptr);
  else if (options.processes)
    run(&world_of(state.place, *options.processes));
  else
    comm::threads::run(options.plan.world(), options.comm_timeout,
                       [&](comm::Communicator& world) { run(&world); });
}

}  // namespace tessera::pipeline
