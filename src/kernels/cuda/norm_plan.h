#pragma once

#include <cstdint>

namespace tessera::kernels::cuda {

/// Launch plan of a norm over rows of `width` channels: `lanes` threads hold a row in registers as
/// `chunks` vectors each. Up to 32 lanes share a warp with other rows; more form a block.
struct NormPlan {
  int vector = 1;  ///< elements of an access: 8 or 1
  int chunks = 1;  ///< vectors of a thread
  int lanes = 1;   ///< threads of a row, a power of two up to 32, else a multiple of 32
  int threads = 128;
  constexpr int rows_per_block() const { return lanes <= 32 ? threads / lanes : 1; }
};
constexpr int64_t kMostNormWidth = 32768;
constexpr int kMostNormThreads = 1024;  // threads of a block: each may have 64 registers

/// `words`: rows can be read 16 bytes at a time.
constexpr NormPlan norm_plan(int64_t width, bool words) {
  NormPlan plan;
  plan.vector = words ? 8 : 1;
  const int64_t vectors = (width + plan.vector - 1) / plan.vector;
  if (vectors <= 32) {
    while (plan.lanes < vectors) plan.lanes *= 2;
    return plan;
  }
  // A vector for each thread while a block can hold the row, then four; longer rows are read again.
  plan.chunks = vectors <= 512 ? 1 : vectors <= 4096 ? 4 : 32;
  const int64_t threads = (vectors + plan.chunks - 1) / plan.chunks;
  plan.lanes = static_cast<int>((threads + 31) / 32 * 32);
  plan.threads = plan.lanes;
  return plan;
}

}  // namespace tessera::kernels::cuda
