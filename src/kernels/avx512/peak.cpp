#include "kernels/sampling.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/avx512/vector.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

/// Eight doubles with the operations of kernels/wide/peak.inc.
using Doubles = __m512d;
TESSERA_INLINE Doubles all_doubles(double x) { return _mm512_set1_pd(x); }
TESSERA_INLINE Doubles lower(Floats x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
TESSERA_INLINE Doubles upper(Floats x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
TESSERA_INLINE Doubles add(Doubles a, Doubles b) { return _mm512_add_pd(a, b); }
TESSERA_INLINE Doubles sub(Doubles a, Doubles b) { return _mm512_sub_pd(a, b); }
TESSERA_INLINE Doubles mul(Doubles a, Doubles b) { return _mm512_mul_pd(a, b); }
TESSERA_INLINE Doubles fmadd(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
/// Returns b if either is NaN.
TESSERA_INLINE Doubles max(Doubles a, Doubles b) { return _mm512_max_pd(a, b); }
TESSERA_INLINE Doubles nearest(Doubles x) { return _mm512_roundscale_pd(x, 0x08); }
/// p 2^n
TESSERA_INLINE Doubles times_power(Doubles p, Doubles n) { return _mm512_scalef_pd(p, n); }
TESSERA_INLINE double sum_of(Doubles x) { return _mm512_reduce_add_pd(x); }

#include "kernels/wide/peak.inc"

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
