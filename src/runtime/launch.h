#pragma once

#include <functional>
#include <stop_token>

#include "comm/communicator.h"
#include "runtime/model_state.h"

namespace tessera::runtime {

/// Runs the ranks of a model's plan that this process holds, each in its scope, and returns when
/// all of them have ended. `rank` gets its world; null under a plan of one rank, which then heeds
/// `stop` anywhere. Several agree on a stop themselves. Ranks of a model on meta are simulated.
void launch_ranks(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  const std::function<void(comm::Communicator* world)>& rank);

}  // namespace tessera::runtime
