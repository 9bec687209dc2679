#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tessera::fused {

#if defined(TESSERA_ON_GPU)
/// A real GPU computes all by its own kernels.
struct EmulatedExperts {
  explicit EmulatedExperts(bool) {}
};
#else
/// Computes experts, sums and fused layers of the program's emulated GPU by the sources of the CUDA
/// kernels, until destruction. The rest is computed by the CPU's reference kernels.
class EmulatedExperts {
 public:
  /// `warpgroups`: the GPU has them.
  explicit EmulatedExperts(bool warpgroups);
  ~EmulatedExperts();
  EmulatedExperts(const EmulatedExperts&) = delete;
  EmulatedExperts& operator=(const EmulatedExperts&) = delete;
};
#endif

}  // namespace tessera::fused
