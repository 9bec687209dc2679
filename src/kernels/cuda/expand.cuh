#pragma once

#include "kernels/cuda/division.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/packed_weight.h"

namespace tessera::kernels::cuda {

// V neighbouring integers of a row, times the row's scale, rounded to bf16.
template <int V>
__global__ void __launch_bounds__(kSpreadThreads)
    expand_kernel(const int8_t* values, const float* scales, Divisor chunks, BFloat16* y,
                  int64_t begin, uint32_t pieces) {
  after_those_before();
  for (uint32_t i = first_small_piece(); i < pieces; i += small_piece_step()) {
    const RowPlace at(i, chunks);
    const int64_t row = begin + at.row, first = (row * chunks.value + at.chunk) * V;
    const float scale = scales[row];
    float v[V];
    if constexpr (V == 8) {
      const uint2 word = *reinterpret_cast<const uint2*>(values + first);
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j)
        v[j] = scale *
               static_cast<float>(static_cast<int8_t>((j < 4 ? word.x : word.y) >> (8 * (j % 4))));
    } else {
      v[0] = scale * static_cast<float>(values[first]);
    }
    store<V>(y, DType::bf16, first, v);
  }
}

/// Queues the conversion of a weight's int8 rows with their scales to dense bf16 rows.
inline void expand(const char* kernel, const PackedWeight& w, void* y) {
  const int64_t rows = w.paired ? 2 * w.n : w.n;
  const auto* const values = static_cast<const int8_t*>(w.data.raw());
  const bool words =
      w.k % 8 == 0 && reinterpret_cast<uintptr_t>(values) % 8 == 0 && in_words(y, DType::bf16, w.k);
  const int64_t chunks = words ? w.k / 8 : w.k;
  each_run_of_rows(rows, chunks, [&](int64_t first, int64_t count) {
    launch(kernel, words ? expand_kernel<8> : expand_kernel<1>, early(spread(count * chunks)),
           values, w.scales.data<float>(), Divisor(chunks), static_cast<BFloat16*>(y), first,
           static_cast<uint32_t>(count * chunks));
  });
}

}  // namespace tessera::kernels::cuda
