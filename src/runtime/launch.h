#pragma once

#include <functional>
#include <stop_token>

#include "comm/communicator.h"
#include "runtime/model_state.h"

namespace tessera::runtime {

/// Runs the ranks of a model's plan in this process, each in its own scope, and returns after all
/// have ended. `rank` receives its world communicator. Under a plan of one rank the communicator is
/// null, and the rank obeys `stop` anywhere; several ranks must agree on a stop themselves. Ranks
/// of a model on meta are simulated.
void launch_ranks(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  const std::function<void(comm::Communicator* world)>& rank);

}  // namespace tessera::runtime
