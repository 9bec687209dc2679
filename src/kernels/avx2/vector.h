#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/wide/inline.h"
#include "tensor/dtype.h"

// Code between these two macros may use AVX2 with FMA and F16C. Include every header before them:
// the enclosed code must run only after a check of the instruction set.
#if defined(__clang__)
#define TESSERA_AVX2_BEGIN \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,f16c\"))), apply_to = function)")
#define TESSERA_AVX2_END _Pragma("clang attribute pop")
#else
#define TESSERA_AVX2_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")")
#define TESSERA_AVX2_END _Pragma("GCC pop_options")
#endif

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

using tensor::DType;

/// Sixteen floats, and a mask: the vector operations of kernels/wide.
struct Floats {
  __m256 low, high;
};
struct Keep {
  int64_t count;  ///< number of leading lanes
  explicit operator bool() const { return count > 0; }
};
constexpr Keep kWhole{16};
/// Mask of the first `count` of sixteen lanes.
TESSERA_INLINE Keep lanes(int64_t count) { return {count >= 16 ? 16 : count <= 0 ? 0 : count}; }

TESSERA_INLINE Floats zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TESSERA_INLINE Floats all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TESSERA_INLINE Floats add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
TESSERA_INLINE Floats sub(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
TESSERA_INLINE Floats mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
/// a * b, rounded: hidden from the compiler, to prevent fusing with an addition.
TESSERA_INLINE Floats times(Floats a, Floats b) {
  Floats product;
  asm("vmulps %2, %1, %0" : "=x"(product.low) : "x"(a.low), "x"(b.low));
  asm("vmulps %2, %1, %0" : "=x"(product.high) : "x"(a.high), "x"(b.high));
  return product;
}
TESSERA_INLINE Floats div(Floats a, Floats b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
/// a b + c
TESSERA_INLINE Floats fmadd(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
/// a b - c
TESSERA_INLINE Floats fmsub(Floats a, Floats b, Floats c) {
  return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}
/// Returns b if either is NaN.
TESSERA_INLINE Floats max(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
TESSERA_INLINE Floats min(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
TESSERA_INLINE Floats magnitude(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
/// Selects `yes` where x < 0, else `no`.
TESSERA_INLINE Floats if_negative(Floats x, Floats yes, Floats no) {
  const __m256 zero = _mm256_setzero_ps();
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(x.low, zero, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(x.high, zero, _CMP_LT_OQ))};
}
TESSERA_INLINE bool any_above(Floats a, Floats b) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ),
                                         _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ))) != 0;
}
TESSERA_INLINE float sum_of(Floats x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  __m128 v = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}
TESSERA_INLINE float largest_of(Floats x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  __m128 v = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
}

/// Full bit masks of the kept lanes.
struct Mask {
  __m256i low, high;
};
TESSERA_INLINE Mask mask_of(Keep keep) {
  alignas(64) static constexpr int32_t kWindow[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                      -1, -1, -1, -1, -1, -1, -1, -1};
  const int32_t* from = kWindow + 16 - keep.count;
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8))};
}
/// Clears the lanes outside the mask.
TESSERA_INLINE Floats select_lanes(Floats x, Keep keep) {
  if (keep.count == 16) return x;
  const Mask mask = mask_of(keep);
  return {_mm256_and_ps(x.low, _mm256_castsi256_ps(mask.low)),
          _mm256_and_ps(x.high, _mm256_castsi256_ps(mask.high))};
}

TESSERA_INLINE Floats load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
/// Loads only kept lanes; the others are zero and not accessed.
TESSERA_INLINE Floats load(const float* from, Keep keep) {
  if (keep.count == 16) return load(from);
  const Mask mask = mask_of(keep);
  return {_mm256_maskload_ps(from, mask.low), _mm256_maskload_ps(from + 8, mask.high)};
}
TESSERA_INLINE Floats load(const float* from, Keep keep, Floats fallback) {
  if (keep.count == 16) return load(from);
  const Mask mask = mask_of(keep);
  const Floats v{_mm256_maskload_ps(from, mask.low), _mm256_maskload_ps(from + 8, mask.high)};
  return {_mm256_blendv_ps(fallback.low, v.low, _mm256_castsi256_ps(mask.low)),
          _mm256_blendv_ps(fallback.high, v.high, _mm256_castsi256_ps(mask.high))};
}
TESSERA_INLINE void put(float* to, Floats v) {
  _mm256_storeu_ps(to, v.low);
  _mm256_storeu_ps(to + 8, v.high);
}
TESSERA_INLINE void put(float* to, Keep keep, Floats v) {
  if (keep.count == 16) return put(to, v);
  const Mask mask = mask_of(keep);
  _mm256_maskstore_ps(to, mask.low, v.low);
  _mm256_maskstore_ps(to + 8, mask.high, v.high);
}

/// Widens eight bf16 to floats.
TESSERA_INLINE __m256 widen(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
/// Loads sixteen 16-bit elements, zeros outside `keep`.
TESSERA_INLINE __m256i load_halves(const void* from, Keep keep) {
  if (keep.count == 16) return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  alignas(32) uint16_t part[16] = {};
  std::memcpy(part, from, static_cast<size_t>(keep.count) * 2);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(part));
}
TESSERA_INLINE void put_halves(void* to, Keep keep, __m256i v) {
  if (keep.count == 16) return _mm256_storeu_si256(static_cast<__m256i*>(to), v);
  alignas(32) uint16_t part[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(part), v);
  std::memcpy(to, part, static_cast<size_t>(keep.count) * 2);
}
TESSERA_INLINE Floats load(const tensor::BFloat16* from, Keep keep) {
  if (keep.count == 16)
    return {widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
            widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
  const __m256i half = load_halves(from, keep);
  return {widen(_mm256_castsi256_si128(half)), widen(_mm256_extracti128_si256(half, 1))};
}
/// Sixteen elements of memory as f32, those outside `keep` as zero.
TESSERA_INLINE Floats load(const void* data, DType dtype, int64_t at, Keep keep) {
  if (dtype == DType::f32) return load(static_cast<const float*>(data) + at, keep);
  if (dtype == DType::bf16) return load(static_cast<const tensor::BFloat16*>(data) + at, keep);
  const __m256i half = load_halves(static_cast<const uint16_t*>(data) + at, keep);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

/// Rounds numbers (not NaN) to bf16, nearest even, in the upper halves of words.
TESSERA_INLINE __m256i rounded_numbers(__m256 v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
}
/// Same for any floats; NaN stays NaN.
TESSERA_INLINE __m256i rounded_words(__m256 v) {
  const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x400000));
  const __m256 is_none = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded_numbers(v), quiet, _mm256_castps_si256(is_none));
}
/// Packs sixteen 32-bit words below 2^16 into halves.
TESSERA_INLINE __m256i packed(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
/// Rounds sixteen floats to bf16, nearest even.
TESSERA_INLINE __m256i to_bf16(Floats v) {
  if (_mm256_movemask_ps(_mm256_cmp_ps(v.low, v.high, _CMP_UNORD_Q)) == 0) [[likely]]
    return packed(_mm256_srli_epi32(rounded_numbers(v.low), 16),
                  _mm256_srli_epi32(rounded_numbers(v.high), 16));
  return packed(_mm256_srli_epi32(rounded_words(v.low), 16),
                _mm256_srli_epi32(rounded_words(v.high), 16));
}
TESSERA_INLINE void put_bf16(void* to, Floats v) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), to_bf16(v));
}
/// Rounds to bf16 and widens to f32.
TESSERA_INLINE Floats rounded_to_bf16(Floats v) {
  const __m256i keep = _mm256_set1_epi32(-65536);
  return {_mm256_castsi256_ps(_mm256_and_si256(rounded_words(v.low), keep)),
          _mm256_castsi256_ps(_mm256_and_si256(rounded_words(v.high), keep))};
}
/// Stores the elements in `keep`, rounded to nearest even.
TESSERA_INLINE void store(void* data, DType dtype, int64_t at, Keep keep, Floats v) {
  if (dtype == DType::f32) return put(static_cast<float*>(data) + at, keep, v);
  const __m256i half = dtype == DType::bf16
                           ? to_bf16(v)
                           : _mm256_set_m128i(_mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT),
                                              _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT));
  put_halves(static_cast<uint16_t*>(data) + at, keep, half);
}

/// Even or odd elements of bf16 pairs as f32.
TESSERA_INLINE Floats even(Floats pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs.low), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs.high), 16))};
}
TESSERA_INLINE Floats odd(Floats pairs) {
  const __m256 upper = _mm256_castsi256_ps(_mm256_set1_epi32(-65536));
  return {_mm256_and_ps(pairs.low, upper), _mm256_and_ps(pairs.high, upper)};
}

/// sum + a b
template <bool dot>
TESSERA_INLINE Floats add_products(Floats a, Floats b, Floats sum) {
  static_assert(!dot, "AVX2 has no dot products of bf16");
  // Written in assembly, because the compiler would reorder sums beyond the available registers.
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.low) : "x"(a.low), "x"(b.low));
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.high) : "x"(a.high), "x"(b.high));
  return sum;
}

/// Clamps to arguments with 2^x finite, zero or infinite, for the next two functions; NaN stays
/// NaN.
TESSERA_INLINE Floats exponent(Floats x) { return min(all(128), max(all(-127), x)); }
/// Same for x up to 128.
TESSERA_INLINE Floats exponent_below(Floats x) { return max(all(-127), x); }
/// x - floor(x)
TESSERA_INLINE Floats fraction(Floats x) {
  return sub(x, {_mm256_floor_ps(x.low), _mm256_floor_ps(x.high)});
}
/// p 2^floor(x)
TESSERA_INLINE __m256 scale2(__m256 p, __m256 x) {
  const __m256i n = _mm256_cvttps_epi32(_mm256_floor_ps(x));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}
TESSERA_INLINE Floats scale2(Floats p, Floats x) {
  return {scale2(p.low, x.low), scale2(p.high, x.high)};
}

#include "kernels/wide/functions.inc"

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
