#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"
#include "tensor/dtype.h"

// Functions between these two may use AVX-512 with BF16. Include every header before them: what
// they surround must run behind a check of the instruction set.
#if defined(__clang__)
// clang takes one literal in a _Pragma.
// clang-format off
#define TESSERA_AVX512_BEGIN \
  _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,fma,f16c\"))), apply_to = function)")
// clang-format on
#define TESSERA_AVX512_END _Pragma("clang attribute pop")
#else
#define TESSERA_AVX512_BEGIN                                                                       \
  _Pragma("GCC push_options")                                                                      \
      _Pragma("GCC target(\"avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,fma,f16c\")") \
          _Pragma("GCC diagnostic push") _Pragma(                                                  \
              "GCC diagnostic ignored \"-Wmaybe-uninitialized\"") /* inside gcc 12's own */        \
      _Pragma("GCC diagnostic ignored \"-Wuninitialized\"")       /* intrinsics */
#define TESSERA_AVX512_END _Pragma("GCC diagnostic pop") _Pragma("GCC pop_options")
#endif

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

using tensor::DType;

/// Sixteen elements of memory as f32, those outside `keep` as zero.
inline __m512 load(const void* data, DType dtype, int64_t at, __mmask16 keep) {
  if (dtype == DType::f32) return _mm512_maskz_loadu_ps(keep, static_cast<const float*>(data) + at);
  const __m256i half = _mm256_maskz_loadu_epi16(keep, static_cast<const uint16_t*>(data) + at);
  if (dtype == DType::f16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Rounds sixteen f32 to bf16, to nearest even.
inline __m256i to_bf16(__m512 v) {
  const __m256bh half = _mm512_cvtneps_pbh(v);
  __m256i bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

/// Sixteen bf16 as f32.
inline __m512 widen(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Stores the elements in `keep`, rounded to nearest even.
inline void store(void* data, DType dtype, int64_t at, __mmask16 keep, __m512 v) {
  if (dtype == DType::f32) {
    _mm512_mask_storeu_ps(static_cast<float*>(data) + at, keep, v);
    return;
  }
  const __m256i half =
      dtype == DType::f16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : to_bf16(v);
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(data) + at, keep, half);
}

/// The first `count` of sixteen lanes.
inline __mmask16 lanes(int64_t count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

/// 2^x to 2e-7, any float: 2^floor(x) by scalef, the rest by a minimax polynomial.
inline __m512 exp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_set1_ps(0.0018775767f);
  for (float c : {0.0089893401f, 0.055826318f, 0.24015362f, 0.69315307f, 0.99999993f})
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, x);
}

/// x / (1 + 2^-y)
inline __m512 times_logistic2(__m512 x, __m512 y) {
  const __m512 e = exp2(_mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), y), _mm512_set1_ps(126)));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), e));
}

inline __m512 silu(__m512 x) {
  return times_logistic2(x, _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)));
}

/// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
inline __m512 gelu_tanh(__m512 x) {
  constexpr float a = 2 * 0.79788456f * 1.44269504f;
  const __m512 p =
      _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(a * 0.044715f), _mm512_set1_ps(a));
  return times_logistic2(x, _mm512_mul_ps(x, p));
}

/// 0.5 x (1 + erf(x / sqrt 2)); erf by Abramowitz and Stegun 7.1.26, to 2e-7.
inline __m512 gelu_erf(__m512 x) {
  const __m512 one = _mm512_set1_ps(1),
               z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.70710678f));
  const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(z, _mm512_set1_ps(0.3275911f), one));
  __m512 p = _mm512_set1_ps(1.061405429f);
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(c));
  const __m512 e = exp2(_mm512_mul_ps(_mm512_mul_ps(z, z), _mm512_set1_ps(-1.44269504f)));
  const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), e);  // 1 - erf |z|
  const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
  const __m512 both = _mm512_mask_blend_ps(negative, _mm512_sub_ps(_mm512_set1_ps(2), tail), tail);
  return _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.5f)), both);
}

template <Activation activation>
inline __m512 activate(__m512 x) {
  if constexpr (activation == Activation::silu) return silu(x);
  if constexpr (activation == Activation::gelu_tanh) return gelu_tanh(x);
  if constexpr (activation == Activation::gelu_erf) return gelu_erf(x);
  if constexpr (activation == Activation::relu) return _mm512_max_ps(_mm512_setzero_ps(), x);
  return x;
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
