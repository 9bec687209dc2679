#pragma once

#include "kernels/avx512/byte_dots.h"
#include "kernels/avx512/vector.h"

#if defined(__x86_64__)
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

/// acc[m][0 .. 16 * vectors) += sum over words of a[m][word] * w[word][...]: multiplies some
/// pixels, `a_step` bytes apart, with a chunk of a filter panel.
using ConvMicro = void (*)(const std::byte* a, int64_t a_step, const std::byte* w, int64_t words,
                           float* acc);

/// Scale of a pixel's integers, and -kConvOffset times their sum; behind the words of the pixel.
struct PixelNumbers {
  float scale;
  int32_t lift;
};

/// i8: `words` are all words of a tap, because the integer sums are scaled for each pixel.
template <int M, int V>
void int8_conv_micro(const std::byte* a, int64_t a_step, const std::byte* w, int64_t words,
                     float* acc) {
  PixelNumbers pixels[M];
  __m512i sum[M][V];
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    std::memcpy(&pixels[m], a + m * a_step + words * 4, sizeof(PixelNumbers));
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[m][v] = _mm512_set1_epi32(pixels[m].lift);
  }
  for (int64_t k = 0; k < words; ++k) {
    __m512i filter[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) filter[v] = _mm512_load_si512(w + (k * V + v) * 64);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const __m512i pixel = four_of(a + m * a_step + k * 4);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) add_dots(sum[m][v], filter[v], pixel);
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* const at = acc + (m * V + v) * 16;
      _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[m][v]),
                                          _mm512_set1_ps(pixels[m].scale), _mm512_load_ps(at)));
    }
}

template <DType dtype, int M, int V>
void float_conv_micro(const std::byte* a, int64_t a_step, const std::byte* w, int64_t words,
                      float* acc) {
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

template <DType dtype, int M, int V>
constexpr ConvMicro kConvMicro = [] {
  if constexpr (dtype == DType::i8)
    return int8_conv_micro<M, V>;
  else
    return float_conv_micro<dtype, M, V>;
}();

/// Maximum pixels of a call, limited by registers.
constexpr int conv_pixels(int vectors) { return vectors <= 2 ? 12 : 6; }

template <DType dtype, int V>
ConvMicro conv_micro_for(int64_t pixels) {
  constexpr ConvMicro few[] = {kConvMicro<dtype, 1, V>, kConvMicro<dtype, 2, V>,
                               kConvMicro<dtype, 3, V>, kConvMicro<dtype, 4, V>,
                               kConvMicro<dtype, 5, V>, kConvMicro<dtype, 6, V>};
  if constexpr (V <= 2) {
    constexpr ConvMicro more[] = {kConvMicro<dtype, 7, V>,  kConvMicro<dtype, 8, V>,
                                  kConvMicro<dtype, 9, V>,  kConvMicro<dtype, 10, V>,
                                  kConvMicro<dtype, 11, V>, kConvMicro<dtype, 12, V>};
    if (pixels > 6) return more[pixels - 7];
  }
  return few[pixels - 1];
}

template <DType dtype>
ConvMicro conv_micro_for(int vectors, int64_t pixels) {
  switch (vectors) {
    case 1: return conv_micro_for<dtype, 1>(pixels);
    case 2: return conv_micro_for<dtype, 2>(pixels);
    case 3: return conv_micro_for<dtype, 3>(pixels);
    default: return conv_micro_for<dtype, 4>(pixels);
  }
}

/// Kernel for 1 .. conv_pixels(vectors) pixels and 1 .. 4 vectors of output channels.
inline ConvMicro conv_micro_for(DType dtype, int vectors, int64_t pixels) {
  switch (dtype) {
    case DType::i8: return conv_micro_for<DType::i8>(vectors, pixels);
    case DType::bf16: return conv_micro_for<DType::bf16>(vectors, pixels);
    default: return conv_micro_for<DType::f32>(vectors, pixels);
  }
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
