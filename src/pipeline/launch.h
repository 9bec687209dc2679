#pragma once

#include <functional>
#include <stop_token>

#include "comm/communicator.h"
#include "nn/spatial.h"
#include "pipeline/model_state.h"

namespace tessera::pipeline {

/// Runs the ranks of a model's plan that this process holds, each in its scope, and returns when
/// all of them have ended. `rank` gets its world; null under a plan of one rank, which then heeds
/// `stop` anywhere. Several agree on a stop themselves. Ranks of a model on meta are simulated.
void launch_ranks(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  const std::function<void(comm::Communicator* world)>& rank);

/// The same for the ranks that share a VAE's images (Plan::vae): `rank` gets its part of them and
/// their communicator. One that has them alone runs in the caller's scope, and gets null. `chunk`:
/// lines that filters work on at a time (nn::LocalSpatial).
void launch_bands(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  int64_t chunk,
                  const std::function<void(nn::Spatial& spatial, comm::Communicator* ranks)>& rank);

}  // namespace tessera::pipeline
