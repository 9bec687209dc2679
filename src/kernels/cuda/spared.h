#pragma once

#include <algorithm>
#include <atomic>

namespace tessera::kernels::cuda {

/// Number of multiprocessors left by device-filling kernels to others; see
/// tensor::DeviceRuntime::spare(). A program has a single device.
inline std::atomic<int> spared_multiprocessors{0};

inline bool nothing_spared() { return spared_multiprocessors.load(std::memory_order_relaxed) == 0; }

/// Number of remaining multiprocessors.
inline int unspared(int multiprocessors) {
  return std::max(1, multiprocessors - spared_multiprocessors.load(std::memory_order_relaxed));
}

}  // namespace tessera::kernels::cuda
