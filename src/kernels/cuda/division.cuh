#pragma once

#include "kernels/cuda/device.cuh"

namespace tessera::kernels::cuda {

/// Division of numbers below 2^31 by a constant known to the host, with a multiplication and a
/// shift (Granlund and Montgomery 1994, section 4): a 64-bit division takes some hundred
/// instructions.
struct Divisor {
  uint32_t value = 1, magic = 1, shift = 0;

  Divisor() = default;
  /// The divisor is 1 to 2^31 - 1.
  explicit Divisor(int64_t divisor) : value(static_cast<uint32_t>(divisor)) {
    while (uint64_t{1} << shift < value) ++shift;
    magic =
        static_cast<uint32_t>(((uint64_t{1} << shift) - value) * (uint64_t{1} << 32) / value + 1);
  }
  __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
};

/// A piece of rows of `chunks` words each.
struct RowPlace {
  uint32_t row, chunk;
  __device__ RowPlace(uint32_t piece, const Divisor& chunks)
      : row(chunks.quotient(piece)), chunk(piece - row * chunks.value) {}
};

/// Calls f(first, count) for runs of rows of at most 2^31 - 1 pieces together, so that kernels
/// count them in 32 bits.
template <class F>
void each_run_of_rows(int64_t rows, int64_t pieces_of_row, const F& f) {
  constexpr int64_t kMost = 0x7fffffff;
  if (rows <= 0 || pieces_of_row <= 0) return;
  const int64_t at_once = kMost / pieces_of_row > 0 ? kMost / pieces_of_row : 1;
  for (int64_t first = 0; first < rows; first += at_once)
    f(first, rows - first < at_once ? rows - first : at_once);
}

/// Same in 32 bits, for pieces of a run.
__device__ inline uint32_t first_small_piece() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline uint32_t small_piece_step() { return gridDim.x * blockDim.x; }

}  // namespace tessera::kernels::cuda
