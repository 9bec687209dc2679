#pragma once

#include <cstring>

#include "kernels/avx512/vector.h"
#include "kernels/packed_weight.h"

#if defined(__x86_64__)
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

// VNNI multiplies unsigned bytes by signed ones, so weights enter as w + 128. A sum starts with
// -128 times the sum of x, which cancels this offset.

/// sum + w x over four bytes of each lane; in assembly, because the compiler would move the sums.
TESSERA_INLINE void add_dots(__m512i& sum, __m512i w, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
}

/// Four bytes in every lane.
TESSERA_INLINE __m512i four_of(const std::byte* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

/// Rounds numbers to integers as kInt8Largest says. If the largest magnitude is NaN or infinite,
/// all become zeros, and the scale is no number.
struct WholeNumbers {
  __m512 inverse;
  __mmask16 keep;

  explicit WholeNumbers(float largest)
      : inverse(_mm512_set1_ps(largest > kInt8Least ? kInt8Largest / largest : 0)),
        keep(largest > kInt8Least && kInt8Largest / largest > 0 ? 0xffff : 0) {}
  TESSERA_INLINE __m512i operator()(__m512 v) const {
    return _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v, inverse));
  }
};

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
