#pragma once

#include <functional>
#include <stop_token>

#include "comm/communicator.h"
#include "nn/spatial.h"
#include "runtime/model_state.h"

namespace tessera::diffusion {

/// Runs the ranks of this process that share a VAE's images (Plan::vae; runtime/launch.h). `rank`
/// receives its share of them and their communicator. A single rank runs in the caller's scope with
/// a null communicator. `chunk`: lines per call of filters (nn::LocalSpatial).
void launch_bands(const runtime::ModelState& state, const runtime::RunMeters& meters,
                  const std::stop_token& stop, int64_t chunk,
                  const std::function<void(nn::Spatial& spatial, comm::Communicator* ranks)>& rank);

}  // namespace tessera::diffusion
