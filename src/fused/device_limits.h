#pragma once

#include <cstdint>
#include <string>

namespace tessera::fused {

/// Limits of a launch for a layer: its ranks and experts are parameters of the kernel, and rows are
/// moved in words of 16 bytes.
inline constexpr int kMostDeviceRanks = 8, kMostDeviceExperts = 512;
inline constexpr int64_t kDeviceChannels = 8;

/// The reason against a layer of this form in one launch, with the number; empty: none.
std::string device_problem(int ranks, int64_t experts, int64_t hidden, int64_t inner);

}  // namespace tessera::fused
