#pragma once

// The tests of CUDA kernels have two legs. The emulated one compiles a kernel's source for the CPU
// and keeps its arrays in an emulated GPU's memory, which the host cannot reach; the other one
// (TESSERA_ON_GPU, label gpu) calls the same function of the library on a real GPU. Include this
// first, and the kernel's .cu only in the emulated leg.

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/where.h"

#if defined(TESSERA_ON_GPU)
namespace tessera::kernels {
inline constexpr bool kOnGpu = true;
}
#else
#include "kernels/cuda/emulation.h"
namespace tessera::kernels {
inline constexpr bool kOnGpu = false;
}
#endif
#include "kernels/cuda/spared.h"  // in the namespace of the leg

namespace tessera::kernels {

/// Once more, with everything that hardware leaves open changed as far as one can: the emulated
/// threads run in the other order.
template <class Run>
auto again(const Run& run) {
#if defined(TESSERA_ON_GPU)
  return run();
#else
  emulation::backwards = true;
  auto result = run();
  emulation::backwards = false;
  return result;
#endif
}

/// While one lives, kernels leave so many multiprocessors to others.
class Spare {
 public:
  explicit Spare(int multiprocessors) { cuda::spared_multiprocessors = multiprocessors; }
  ~Spare() { cuda::spared_multiprocessors = 0; }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
};

/// With the kernels for any tensor cores, and with those for Hopper; a GPU has one of them.
template <class F>
void each_kind(const F& f) {
#if defined(TESSERA_ON_GPU)
  f();
#else
  for (bool warpgroups : {false, true}) {
    SCOPED_TRACE(warpgroups ? "warpgroups" : "warps");
    emulation::warpgroups = warpgroups;
    f();
  }
  emulation::warpgroups = false;
#endif
}

/// Problems for both legs, then those that only a GPU finishes soon (and no checker of its memory:
/// TESSERA_SMALL_PROBLEMS leaves them out).
template <class T>
std::vector<T> problems(std::vector<T> small, const std::vector<T>& large) {
  if (kOnGpu && std::getenv("TESSERA_SMALL_PROBLEMS") == nullptr)
    small.insert(small.end(), large.begin(), large.end());
  return small;
}

}  // namespace tessera::kernels
