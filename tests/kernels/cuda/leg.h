#pragma once

// The tests of CUDA kernels run in two legs. The emulated leg compiles a kernel's source for the
// CPU and keeps its arrays in an emulated GPU's memory, closed to the host. The other leg
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

/// Runs again with all undefined order changed as far as possible: the emulated threads run in the
/// other order.
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

/// Lets kernels leave multiprocessors to others until destruction.
class Spare {
 public:
  explicit Spare(int multiprocessors) { cuda::spared_multiprocessors = multiprocessors; }
  ~Spare() { cuda::spared_multiprocessors = 0; }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
};

/// With the kernels for any tensor cores, and with those for Hopper; a GPU supports a single kind.
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

/// Problems for both legs, then large problems for a GPU only (TESSERA_SMALL_PROBLEMS leaves these
/// out, for memory checkers).
template <class T>
std::vector<T> problems(std::vector<T> small, const std::vector<T>& large) {
  if (kOnGpu && std::getenv("TESSERA_SMALL_PROBLEMS") == nullptr)
    small.insert(small.end(), large.begin(), large.end());
  return small;
}

}  // namespace tessera::kernels
