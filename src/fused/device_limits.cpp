#include "fused/device_limits.h"

#include <fmt/format.h>

namespace tessera::fused {

std::string device_problem(int ranks, int64_t experts, int64_t hidden, int64_t inner) {
  if (ranks > kMostDeviceRanks)
    return fmt::format("{} ranks; at most {} share a launch", ranks, kMostDeviceRanks);
  if (experts > kMostDeviceExperts)
    return fmt::format("{} experts; a launch has at most {}", experts, kMostDeviceExperts);
  if (hidden % kDeviceChannels != 0 || inner % kDeviceChannels != 0)
    return fmt::format("experts of {} to {} channels; both must be multiples of {}", hidden, inner,
                       kDeviceChannels);
  return "";
}

}  // namespace tessera::fused
