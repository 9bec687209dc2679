#include "kernels/rope.h"

#if defined(__x86_64__)
#include "kernels/avx512/exact.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

struct Pairs {
  __m512 first, second;
};
Pairs turned(Pairs x, __m512 cos, __m512 sin) {
  return {_mm512_sub_ps(times(x.first, cos), times(x.second, sin)),
          _mm512_add_ps(times(x.second, cos), times(x.first, sin))};
}

// Sixteen pairs that are neighbours: the halves of sixteen words.
void neighbours(const uint16_t* x, __m512 cos, __m512 sin, __mmask16 keep, uint16_t* y) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const __m512i words = _mm512_maskz_loadu_epi32(keep, x);
  const Pairs out = turned({_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
                            _mm512_castsi512_ps(_mm512_and_si512(words, high))},
                           cos, sin);
  const __m512i low = _mm512_srli_epi32(rounded_words(out.first), 16);
  _mm512_mask_storeu_epi32(y, keep,
                           _mm512_or_si512(low, _mm512_and_si512(rounded_words(out.second), high)));
}

// Sixteen pairs whose partners are `across` apart.
void halves(const uint16_t* x, int64_t across, __m512 cos, __m512 sin, __mmask16 keep,
            uint16_t* y) {
  const Pairs out =
      turned({load(x, DType::bf16, 0, keep), load(x, DType::bf16, across, keep)}, cos, sin);
  store_exact(y, DType::bf16, 0, keep, out.first);
  store_exact(y, DType::bf16, across, keep, out.second);
}

template <bool interleaved>
void one_token(const RopeArgs& a, int64_t token) {
  const float *const cos = a.cos + token * a.pairs, *const sin = a.sin + token * a.pairs;
  for (int64_t h = 0; h < a.heads; ++h) {
    const auto* x = static_cast<const uint16_t*>(a.x) + token * a.x_stride + h * a.head_dim;
    auto* y = static_cast<uint16_t*>(a.y) + token * a.y_stride + h * a.head_dim;
    const auto sixteen = [&](int64_t i, __mmask16 keep) __attribute__((always_inline)) {
      const __m512 c = _mm512_maskz_loadu_ps(keep, cos + i),
                   s = _mm512_maskz_loadu_ps(keep, sin + i);
      interleaved ? neighbours(x + 2 * i, c, s, keep, y + 2 * i)
                  : halves(x + i, a.pairs, c, s, keep, y + i);
    };
    int64_t i = 0;  // whole vectors without a mask: see rows() of elementwise
    for (; i + 16 <= a.pairs; i += 16) sixteen(i, 0xffff);
    if (i < a.pairs) sixteen(i, lanes(a.pairs - i));
    for (i = 2 * a.pairs; i < a.head_dim; ++i) y[i] = x[i];
  }
}

}  // namespace

void rope(const RopeArgs& a) {
  if (a.dtype != DType::bf16) return simd::rope(a);
  tensor::parallel_for(a.tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      a.interleaved ? one_token<true>(a, t) : one_token<false>(a, t);
  });
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
