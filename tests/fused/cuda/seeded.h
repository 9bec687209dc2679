#pragma once

// The kernel of the fused operator on the CPU. Include this first.
#include "kernels/where.h"
// Before the emulation, which renames a word.
#include "kernels/cuda/emulation.h"
// Emulation first: the sources below depend on it.
#include "fused/cuda/operator.h"

namespace tessera::fused::cuda {

/// A fault of the protocol, seeded by a test.
struct Seeded {
  static inline Fault fault = Fault::none;
  static bool is(Fault one) { return fault == one; }
};

}  // namespace tessera::fused::cuda
