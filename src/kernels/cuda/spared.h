#pragma once

#include <algorithm>
#include <atomic>

namespace tessera::kernels::cuda {

/// How many multiprocessors kernels that fill the device leave to those of others; see
/// tensor::DeviceRuntime::spare(). A program has one device.
inline std::atomic<int> spared_multiprocessors{0};

inline bool nothing_spared() { return spared_multiprocessors.load(std::memory_order_relaxed) == 0; }

/// Those that are left of all.
inline int unspared(int multiprocessors) {
  return std::max(1, multiprocessors - spared_multiprocessors.load(std::memory_order_relaxed));
}

}  // namespace tessera::kernels::cuda
