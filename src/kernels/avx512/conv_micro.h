#pragma once

#include "kernels/avx512/vector.h"

#if defined(__x86_64__)
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

/// acc[m][0 .. 16 * vectors) += sum over words of a[m][word] * w[word][...]: multiplies some
/// pixels, `a_step` bytes apart, with a chunk of a filter panel.
using ConvMicro = void (*)(const std::byte* a, int64_t a_step, const std::byte* w, int64_t words,
                           float* acc);

template <DType dtype, int M, int V>
void conv_micro(const std::byte* a, int64_t a_step, const std::byte* w, int64_t words, float* acc) {
  __m512 sum[M][V];
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[m][v] = _mm512_load_ps(acc + (m * V + v) * 16);
  for (int64_t k = 0; k < words; ++k) {
    __m512 filter[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) filter[v] = _mm512_load_ps(w + (k * V + v) * 64);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      float word;
      std::memcpy(&word, a + m * a_step + k * 4, 4);
      const __m512 pixel = _mm512_set1_ps(word);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        if constexpr (dtype == DType::bf16)
          sum[m][v] = _mm512_dpbf16_ps(sum[m][v], reinterpret_cast<const __m512bh&>(pixel),
                                       reinterpret_cast<const __m512bh&>(filter[v]));
        else
          sum[m][v] = _mm512_fmadd_ps(pixel, filter[v], sum[m][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm512_store_ps(acc + (m * V + v) * 16, sum[m][v]);
}

/// Maximum pixels of a call, limited by registers.
constexpr int conv_pixels(int vectors) { return vectors <= 2 ? 12 : 6; }

template <DType dtype, int V>
ConvMicro conv_micro_for(int64_t pixels) {
  constexpr ConvMicro few[] = {conv_micro<dtype, 1, V>, conv_micro<dtype, 2, V>,
                               conv_micro<dtype, 3, V>, conv_micro<dtype, 4, V>,
                               conv_micro<dtype, 5, V>, conv_micro<dtype, 6, V>};
  if constexpr (V <= 2) {
    constexpr ConvMicro more[] = {conv_micro<dtype, 7, V>,  conv_micro<dtype, 8, V>,
                                  conv_micro<dtype, 9, V>,  conv_micro<dtype, 10, V>,
                                  conv_micro<dtype, 11, V>, conv_micro<dtype, 12, V>};
    if (pixels > 6) return more[pixels - 7];
  }
  return few[pixels - 1];
}

/// Kernel for 1 .. conv_pixels(vectors) pixels and 1 .. 4 vectors of output channels.
inline ConvMicro conv_micro_for(DType dtype, int vectors, int64_t pixels) {
  const bool half = dtype == DType::bf16;
  switch (vectors) {
    case 1:
      return half ? conv_micro_for<DType::bf16, 1>(pixels) : conv_micro_for<DType::f32, 1>(pixels);
    case 2:
      return half ? conv_micro_for<DType::bf16, 2>(pixels) : conv_micro_for<DType::f32, 2>(pixels);
    case 3:
      return half ? conv_micro_for<DType::bf16, 3>(pixels) : conv_micro_for<DType::f32, 3>(pixels);
    default:
      return half ? conv_micro_for<DType::bf16, 4>(pixels) : conv_micro_for<DType::f32, 4>(pixels);
  }
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
