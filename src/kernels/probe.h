#pragma once

#include <cstdint>
#include <functional>

#include "kernels/isa.h"

namespace tessera::kernels {

/// What the machine itself can do with active_isa(), measured now over the threads of the current
/// scope; 0 where that has no such unit.
struct Limits {
  double bf16_dot = 0;   ///< FLOP/s of AVX512_BF16 dot products on registers
  double f32_fma = 0;    ///< FLOP/s of f32 fused multiply-adds on registers, of 512 bits or 256
  double bf16_tile = 0;  ///< FLOP/s of AMX tile products on registers
  double int8_dot = 0;   ///< multiplications and additions/s of VNNI on registers, int8 with int8
  double read = 0;       ///< bytes/s read from memory, the best of 1, 4 and 8 streams a thread
  /// The strongest unit for products in `bf16` (or f32).
  double product(bool bf16) const;
};

/// Seconds that f takes: time on the CPU with one thread, where others cannot disturb it, else on
/// the wall. The best of `times`.
double best_seconds(const std::function<void()>& f, int times);

/// Dot products and multiply-adds of AVX-512, of the calling thread alone, in turn and briefly:
/// some 100 us; 0 where the machine has none, whatever TESSERA_ISA says.
Limits probe_vectors();
/// Compute units only: some 10 ms.
Limits probe_units();
/// Everything; reads `bytes` (more than the last-level cache, or it measures the cache).
Limits probe_limits(int64_t bytes = int64_t{768} << 20);

}  // namespace tessera::kernels
