#pragma once

#include "kernels/avx512/vector.h"

#if defined(__x86_64__)
// For kernels whose every bit is that of the reference.
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

/// a * b, rounded: the compiler fuses no product that names its rounding.
inline __m512 times(__m512 a, __m512 b) {
  return _mm512_mul_round_ps(a, b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/// The bits of bf16 in the upper halves, and any in the lower ones. Numbers too small to be normal
/// stay, of which the instruction makes zeros.
inline __m512i rounded_words(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
}

/// Stores the elements in `keep` as bf16 or f32.
inline void store_exact(void* data, DType dtype, int64_t at, __mmask16 keep, __m512 v) {
  if (dtype == DType::f32) return store(data, dtype, at, keep, v);
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_words(v), 16));
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(data) + at, keep, half);
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
