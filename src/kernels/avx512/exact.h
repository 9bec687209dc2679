#pragma once

#include "kernels/avx512/vector.h"
#include "kernels/glibc_exp.h"

#if defined(__x86_64__)
// For kernels with results bit-identical to the reference.
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

/// Rounds to bf16 in the upper halves, with arbitrary lower halves. Keeps subnormals, unlike the
/// instruction.
TESSERA_INLINE __m512i rounded_words(Floats v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
}

/// Stores the elements in `keep`, including subnormals.
TESSERA_INLINE void store_exact(void* data, DType dtype, int64_t at, Keep keep, Floats v) {
  if (dtype != DType::bf16) return store(data, dtype, at, keep, v);
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_words(v), 16));
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(data) + at, keep, half);
}

/// Rounds floats to bf16 and interleaves them: even() and odd() invert this.
TESSERA_INLINE Floats words_of(Floats even, Floats odd) {
  const __m512i upper = _mm512_and_si512(rounded_words(odd), _mm512_set1_epi32(-65536));
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(rounded_words(even), 16), upper));
}
/// Splits 32 floats into even elements in a and odd elements in b; and the inverse.
TESSERA_INLINE void unzip(Floats& a, Floats& b) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const Floats first = _mm512_permutex2var_ps(a, even, b);
  b = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
  a = first;
}
TESSERA_INLINE void zip(Floats& a, Floats& b) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const Floats first = _mm512_permutex2var_ps(a, low, b);
  b = _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), b);
  a = first;
}

/// Mask of x >= least.
TESSERA_INLINE __mmask16 not_below(Floats x, float least) {
  return _mm512_cmp_ps_mask(x, all(least), _CMP_GE_OQ);
}
/// Stores approximate values with an error below eight units in the last place as bf16. If a lane
/// is not `valid`, or too near a rounding boundary of bf16, returns false and stores nothing.
TESSERA_INLINE bool store_if_sure(tensor::BFloat16* to, Keep keep, Floats v, __mmask16 valid) {
  const __m512i raised = _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8008));
  const __mmask16 sure = _mm512_mask_test_epi32_mask(valid, raised, _mm512_set1_epi32(0xfff0));
  if (sure != 0xffff) return false;
  _mm256_mask_storeu_epi16(to, keep, _mm512_cvtepi32_epi16(_mm512_srli_epi32(raised, 16)));
  return true;
}

/// 2^(i / 32) from the low bits, with all bits added to the exponent.
TESSERA_INLINE __m512d root_of(__m512i whole) {
  const auto* const roots = reinterpret_cast<const __m512i*>(glibc_exp::kRoots);
  const __m512i low = _mm512_permutex2var_epi64(roots[0], whole, roots[1]),
                high = _mm512_permutex2var_epi64(roots[2], whole, roots[3]);
  const __mmask8 upper = _mm512_test_epi64_mask(whole, _mm512_set1_epi64(16));
  return _mm512_castsi512_pd(
      _mm512_add_epi64(_mm512_mask_mov_epi64(low, upper, high), _mm512_slli_epi64(whole, 47)));
}

TESSERA_INLINE __m512d all_of(double v) { return _mm512_set1_pd(v); }
/// Computes exp(x) bit-identically to glibc.
inline __m256 exp_as_glibc(__m256 x) {
  using namespace glibc_exp;
  // The second operand is returned if either is NaN.
  const __m512d cut =
      _mm512_max_pd(all_of(-kFarthest), _mm512_min_pd(all_of(kFarthest), _mm512_cvtps_pd(x)));
  const __m512d shifted = _mm512_fmadd_pd(all_of(kToRoots), cut, all_of(kShift));
  const __m512d r = _mm512_fmsub_pd(all_of(kToRoots), cut, _mm512_sub_pd(shifted, all_of(kShift)));
  const __m512d z = _mm512_fmadd_pd(all_of(kCubic), r, all_of(kSquare));
  const __m512d y =
      _mm512_fmadd_pd(z, _mm512_mul_pd(r, r), _mm512_fmadd_pd(all_of(kLinear), r, all_of(1)));
  return _mm512_cvtpd_ps(_mm512_mul_pd(y, root_of(_mm512_castpd_si512(shifted))));
}
inline Floats exp_as_glibc(Floats x) {
  const __m256 low = exp_as_glibc(_mm512_castps512_ps256(x)),
               high = exp_as_glibc(_mm512_extractf32x8_ps(x, 1));
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
