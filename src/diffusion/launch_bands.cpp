#include "diffusion/launch_bands.h"

#include <numeric>
#include <vector>

#include "nn/local_spatial.h"
#include "parallel/spatial/bands.h"
#include "runtime/launch.h"

namespace tessera::diffusion {

void launch_bands(
    const runtime::ModelState& state, const runtime::RunMeters& meters, const std::stop_token& stop,
    int64_t chunk,
    const std::function<void(nn::Spatial& spatial, comm::Communicator* ranks)>& rank) {
  const int shares = state.options.plan.vae;
  if (shares == 1) {
    nn::LocalSpatial whole(chunk);
    return rank(whole, nullptr);
  }
  runtime::launch_ranks(state, meters, stop, [&](comm::Communicator* world) {
    const bool takes_part = world->rank() < shares;
    std::vector<int> members(takes_part ? static_cast<size_t>(shares) : 1, world->rank());
    if (takes_part) std::iota(members.begin(), members.end(), 0);
    const auto ranks = world->group(members);  // all ranks of the world must call group()
    if (!takes_part) return;
    const bool reads_stop = state.ranks().speaks(world->rank());
    parallel::Bands bands(*ranks, reads_stop ? stop : std::stop_token(), chunk);
    rank(bands, ranks.get());
  });
}

}  // namespace tessera::diffusion
