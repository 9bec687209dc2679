#pragma once

#include "kernels/avx2/vector.h"
#include "kernels/glibc_exp.h"

#if defined(__x86_64__)
// For kernels with results bit-identical to the reference.
TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

/// Stores the elements in `keep`, including subnormals.
TESSERA_INLINE void store_exact(void* data, DType dtype, int64_t at, Keep keep, Floats v) {
  store(data, dtype, at, keep, v);
}

/// Rounds floats to bf16 and interleaves them: even() and odd() invert this.
TESSERA_INLINE __m256 words_of(__m256 even, __m256 odd) {
  const __m256i upper = _mm256_and_si256(rounded_words(odd), _mm256_set1_epi32(-65536));
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_srli_epi32(rounded_words(even), 16), upper));
}
TESSERA_INLINE Floats words_of(Floats even, Floats odd) {
  return {words_of(even.low, odd.low), words_of(even.high, odd.high)};
}
/// Elements 0, 2, ... (from: 0x88) or 1, 3, ... (0xdd) of sixteen floats.
template <int from>
TESSERA_INLINE __m256 every_second(Floats v) {
  const __m256 mixed = _mm256_shuffle_ps(v.low, v.high, from);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}
TESSERA_INLINE Floats in_turn(__m256 a, __m256 b) {
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
/// Splits 32 floats into even elements in a and odd elements in b; and the inverse.
TESSERA_INLINE void unzip(Floats& a, Floats& b) {
  const Floats first{every_second<0x88>(a), every_second<0x88>(b)};
  b = {every_second<0xdd>(a), every_second<0xdd>(b)};
  a = first;
}
TESSERA_INLINE void zip(Floats& a, Floats& b) {
  const Floats first = in_turn(a.low, b.low);
  b = in_turn(a.high, b.high);
  a = first;
}

/// Mask of x >= least.
TESSERA_INLINE Mask not_below(Floats x, float least) {
  const __m256 y = _mm256_set1_ps(least);
  return {_mm256_castps_si256(_mm256_cmp_ps(x.low, y, _CMP_GE_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(x.high, y, _CMP_GE_OQ))};
}
/// Stores approximate values with an error below eight units in the last place as bf16. If a lane
/// is not `valid`, or too near a rounding boundary of bf16, returns false and stores nothing.
TESSERA_INLINE bool store_if_sure(tensor::BFloat16* to, Keep keep, Floats v, Mask valid) {
  const __m256i up = _mm256_set1_epi32(0x8008), bits = _mm256_set1_epi32(0xfff0);
  const __m256i low = _mm256_add_epi32(_mm256_castps_si256(v.low), up),
                high = _mm256_add_epi32(_mm256_castps_si256(v.high), up);
  const __m256i least =
      _mm256_min_epu32(_mm256_and_si256(_mm256_and_si256(low, bits), valid.low),
                       _mm256_and_si256(_mm256_and_si256(high, bits), valid.high));
  if (_mm256_movemask_epi8(_mm256_cmpeq_epi32(least, _mm256_setzero_si256())) != 0) return false;
  put_halves(to, keep, packed(_mm256_srli_epi32(low, 16), _mm256_srli_epi32(high, 16)));
  return true;
}

TESSERA_INLINE __m256d all_of(double v) { return _mm256_set1_pd(v); }
/// Computes exp(x) bit-identically to glibc.
inline __m128 exp_as_glibc(__m128 x) {
  using namespace glibc_exp;
  // The second operand is returned if either is NaN.
  const __m256d cut =
      _mm256_max_pd(all_of(-kFarthest), _mm256_min_pd(all_of(kFarthest), _mm256_cvtps_pd(x)));
  const __m256d shifted = _mm256_fmadd_pd(all_of(kToRoots), cut, all_of(kShift));
  const __m256i whole = _mm256_castpd_si256(shifted);
  const __m256d r = _mm256_fmsub_pd(all_of(kToRoots), cut, _mm256_sub_pd(shifted, all_of(kShift)));
  const __m256i root = _mm256_i64gather_epi64(reinterpret_cast<const long long*>(kRoots),
                                              _mm256_and_si256(whole, _mm256_set1_epi64x(31)), 8);
  const __m256d z = _mm256_fmadd_pd(all_of(kCubic), r, all_of(kSquare));
  const __m256d y =
      _mm256_fmadd_pd(z, _mm256_mul_pd(r, r), _mm256_fmadd_pd(all_of(kLinear), r, all_of(1)));
  const __m256i power = _mm256_add_epi64(root, _mm256_slli_epi64(whole, 47));
  return _mm256_cvtpd_ps(_mm256_mul_pd(y, _mm256_castsi256_pd(power)));
}
inline __m256 exp_as_glibc(__m256 x) {
  return _mm256_set_m128(exp_as_glibc(_mm256_extractf128_ps(x, 1)),
                         exp_as_glibc(_mm256_castps256_ps128(x)));
}
inline Floats exp_as_glibc(Floats x) { return {exp_as_glibc(x.low), exp_as_glibc(x.high)}; }

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
