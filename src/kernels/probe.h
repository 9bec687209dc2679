#pragma once

#include <cstdint>
#include <functional>

#include "kernels/isa.h"

namespace tessera::kernels {

/// Measured limits of the machine with active_isa(), over the threads of the current scope; 0 for
/// missing units.
struct Limits {
  double bf16_dot = 0;   ///< FLOP/s of AVX512_BF16 dot products on registers
  double f32_fma = 0;    ///< FLOP/s of f32 fused multiply-adds on registers, of 512 bits or 256
  double bf16_tile = 0;  ///< FLOP/s of AMX tile products on registers
  double int8_dot = 0;   ///< multiplications and additions/s of VNNI on registers, int8 by int8
  double read = 0;       ///< bytes/s read from memory, the best of 1, 4 and 8 streams a thread
  /// The strongest unit for products in `bf16` (or f32).
  double product(bool bf16) const;
};

/// Seconds of f, the best of `times`: CPU time with a single thread, unaffected by other processes,
/// else wall time.
double best_seconds(const std::function<void()>& f, int times);

/// Dot products and multiply-adds of AVX-512 in the calling thread only, briefly and in turns: some
/// 100 us; 0 if unsupported, ignoring TESSERA_ISA.
Limits probe_vectors();
/// Compute units only: some 10 ms.
Limits probe_units();
/// Measures everything; reads `bytes` (must exceed the last-level cache).
Limits probe_limits(int64_t bytes = int64_t{768} << 20);

}  // namespace tessera::kernels
