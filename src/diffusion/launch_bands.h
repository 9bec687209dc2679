#pragma once

#include <functional>
#include <stop_token>

#include "comm/communicator.h"
#include "nn/spatial.h"
#include "runtime/model_state.h"

namespace tessera::diffusion {

/// Runs the ranks that share a VAE's images (Plan::vae) and this process
/// holds (runtime/launch.h): `rank` gets its part of them and
/// their communicator. One that has them alone runs in the caller's scope, and gets null. `chunk`:
/// lines that filters work on at a time (nn::LocalSpatial).
void launch_bands(const runtime::ModelState& state, const runtime::RunMeters& meters,
                  const std::stop_token& stop, int64_t chunk,
                  const std::function<void(nn::Spatial& spatial, comm::Communicator* ranks)>& rank);

}  // namespace tessera::diffusion
