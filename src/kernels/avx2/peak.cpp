#include "kernels/sampling.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/avx2/vector.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

/// Eight doubles with the operations of kernels/wide/peak.inc.
struct Doubles {
  __m256d low, high;
};
TESSERA_INLINE Doubles all_doubles(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
TESSERA_INLINE Doubles of_eight(__m256 x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
TESSERA_INLINE Doubles lower(Floats x) { return of_eight(x.low); }
TESSERA_INLINE Doubles upper(Floats x) { return of_eight(x.high); }
TESSERA_INLINE Doubles add(Doubles a, Doubles b) {
  return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
TESSERA_INLINE Doubles sub(Doubles a, Doubles b) {
  return {_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)};
}
TESSERA_INLINE Doubles mul(Doubles a, Doubles b) {
  return {_mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high)};
}
TESSERA_INLINE Doubles fmadd(Doubles a, Doubles b, Doubles c) {
  return {_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)};
}
/// Returns b if either is NaN.
TESSERA_INLINE Doubles max(Doubles a, Doubles b) {
  return {_mm256_max_pd(a.low, b.low), _mm256_max_pd(a.high, b.high)};
}
TESSERA_INLINE Doubles nearest(Doubles x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_pd(x.low, kNearest), _mm256_round_pd(x.high, kNearest)};
}
/// 2^n for integers from -1022 to 1023.
TESSERA_INLINE __m256d power(__m256d n) {
  const __m256i whole = _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(0x1.8p52 + 1023)));
  return _mm256_castsi256_pd(_mm256_slli_epi64(whole, 52));
}
/// p 2^n
TESSERA_INLINE Doubles times_power(Doubles p, Doubles n) {
  return {_mm256_mul_pd(p.low, power(n.low)), _mm256_mul_pd(p.high, power(n.high))};
}
TESSERA_INLINE double sum_of(Doubles x) {
  const __m256d four = _mm256_add_pd(x.low, x.high);
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#include "kernels/wide/peak.inc"

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
