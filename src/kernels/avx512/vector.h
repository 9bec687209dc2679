#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/bf16_path.h"
#include "kernels/matmul.h"
#include "kernels/wide/inline.h"
#include "tensor/dtype.h"

// Code between these two macros may use AVX-512 with BF16. Include every header before them: the
// enclosed code must run only after a check of the instruction set.
#if defined(__clang__)
// clang requires a single literal in _Pragma.
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

namespace tessera::kernels::avx512 {
/// True if the CPU has an instruction for rounding to bf16. Evaluated before main(), outside of
/// AVX-512 code.
inline const bool kRoundsAtOnce = has_dot_products();
}  // namespace tessera::kernels::avx512

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

using tensor::DType;

/// Sixteen elements of memory as f32, those outside `keep` as zero.
TESSERA_INLINE __m512 load(const void* data, DType dtype, int64_t at, __mmask16 keep) {
  if (dtype == DType::f32) return _mm512_maskz_loadu_ps(keep, static_cast<const float*>(data) + at);
  const __m256i half = _mm256_maskz_loadu_epi16(keep, static_cast<const uint16_t*>(data) + at);
  if (dtype == DType::f16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Emulates the AVX512_BF16 instruction on sixteen f32: nearest even, subnormals to zero, NaN stays
/// NaN.
TESSERA_INLINE __m256i to_bf16_in_steps(__m512 v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i words = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 none = _mm512_fpclass_ps_mask(v, 0x81),
                  subnormal = _mm512_fpclass_ps_mask(v, 0x20);
  words = _mm512_mask_or_epi32(words, none, u, _mm512_set1_epi32(0x400000));
  words = _mm512_mask_and_epi32(words, subnormal, u, _mm512_set1_epi32(INT32_MIN));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16));
}

/// Rounds sixteen f32 to bf16, to nearest even.
inline __m256i to_bf16(__m512 v) {
  if (!kRoundsAtOnce) [[unlikely]]  // keeps the fallback out of line
    return to_bf16_in_steps(v);
  __m256i bits;  // volatile: the compiler would hoist the intrinsic above the check
  asm volatile("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(v));
  return bits;
}

/// Sixteen bf16 as f32.
inline __m512 widen(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Stores the elements in `keep`, rounded to nearest even.
TESSERA_INLINE void store(void* data, DType dtype, int64_t at, __mmask16 keep, __m512 v) {
  if (dtype == DType::f32) {
    _mm512_mask_storeu_ps(static_cast<float*>(data) + at, keep, v);
    return;
  }
  const __m256i half =
      dtype == DType::f16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : to_bf16(v);
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(data) + at, keep, half);
}

/// Mask of the first `count` of sixteen lanes.
inline __mmask16 lanes(int64_t count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

/// Sixteen floats with the vector operations of kernels/wide.
using Floats = __m512;
using Keep = __mmask16;
constexpr Keep kWhole = 0xffff;
TESSERA_INLINE Floats zeros() { return _mm512_setzero_ps(); }
TESSERA_INLINE Floats all(float x) { return _mm512_set1_ps(x); }
TESSERA_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
TESSERA_INLINE Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
TESSERA_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
/// a * b, rounded: the compiler does not fuse products with explicit rounding.
TESSERA_INLINE Floats times(Floats a, Floats b) {
  return _mm512_mul_round_ps(a, b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TESSERA_INLINE Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
/// a b + c, a b - c
TESSERA_INLINE Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
TESSERA_INLINE Floats fmsub(Floats a, Floats b, Floats c) { return _mm512_fmsub_ps(a, b, c); }
/// Returns b if either is NaN.
TESSERA_INLINE Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
TESSERA_INLINE Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
TESSERA_INLINE Floats magnitude(Floats x) { return _mm512_abs_ps(x); }
/// Clears the lanes outside the mask.
TESSERA_INLINE Floats select_lanes(Floats x, Keep keep) { return _mm512_maskz_mov_ps(keep, x); }
/// Selects `yes` where x < 0, else `no`.
TESSERA_INLINE Floats if_negative(Floats x, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), no, yes);
}
TESSERA_INLINE bool any_above(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}
TESSERA_INLINE float sum_of(Floats x) { return _mm512_reduce_add_ps(x); }
TESSERA_INLINE float largest_of(Floats x) { return _mm512_reduce_max_ps(x); }
TESSERA_INLINE Floats load(const float* from) { return _mm512_loadu_ps(from); }
TESSERA_INLINE Floats load(const float* from, Keep keep) {
  return _mm512_maskz_loadu_ps(keep, from);
}
TESSERA_INLINE Floats load(const float* from, Keep keep, Floats fallback) {
  return _mm512_mask_loadu_ps(fallback, keep, from);
}
TESSERA_INLINE Floats load(const tensor::BFloat16* from, Keep keep) {
  return widen(_mm256_maskz_loadu_epi16(keep, from));
}
TESSERA_INLINE void put(float* to, Floats v) { _mm512_storeu_ps(to, v); }
TESSERA_INLINE void put(float* to, Keep keep, Floats v) { _mm512_mask_storeu_ps(to, keep, v); }
/// Sixteen bf16, rounded to nearest even.
TESSERA_INLINE void put_bf16(void* to, Floats v) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), to_bf16(v));
}
/// Rounds to bf16 and widens to f32.
TESSERA_INLINE Floats rounded_to_bf16(Floats v) { return widen(to_bf16(v)); }
/// Even or odd elements of bf16 pairs as f32.
TESSERA_INLINE Floats even(Floats pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
TESSERA_INLINE Floats odd(Floats pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}
/// sum + a b; dot: a and b hold bf16 pairs.
template <bool dot>
TESSERA_INLINE Floats add_products(Floats a, Floats b, Floats sum) {
  if constexpr (dot) return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  return _mm512_fmadd_ps(a, b, sum);
}
/// Arguments of the next two functions, the second for x up to 128; x - floor(x); p 2^floor(x).
TESSERA_INLINE Floats exponent(Floats x) { return x; }
TESSERA_INLINE Floats exponent_below(Floats x) { return x; }
TESSERA_INLINE Floats fraction(Floats x) { return _mm512_reduce_ps(x, 0x09); }
TESSERA_INLINE Floats scale2(Floats p, Floats x) { return _mm512_scalef_ps(p, x); }

#include "kernels/wide/functions.inc"

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
