#include "kernels/attention.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "kernels/bf16_path.h"
#include "kernels/wide/flash.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr int kColumns = 4;
template <int columns>
constexpr int kRows = columns == 1 ? 12 : 24 / columns;
constexpr int64_t kHalfWords = 2;

// Packs two key words into a vector: channel c of the first in lane 2 c, of the second in the next
// lane.
TESSERA_INLINE Floats half_row(Floats word, Floats next) {
  const __m512i in_turn = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutex2var_ps(word, in_turn, next);
}
TESSERA_INLINE Floats half_sums(Floats sums) {
  return _mm512_maskz_compress_ps(0x5555, _mm512_add_ps(sums, _mm512_permute_ps(sums, 0xb1)));
}
template <class Form>
void add_half(int64_t rows, const float* x, const float* w, int64_t stride, int64_t depth,
              float* sums, bool first) {
  constexpr int R = 24;
  for (int64_t row = 0; row < rows; row += R, x += R * kBlockKeys, sums += R * stride) {
    Floats sum[R];
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) sum[r] = first ? zeros() : load(sums + r * stride);
    const float* columns = w;
    for (int64_t i = 0; i < depth; i += 2, columns += 2 * stride) {
      const Floats v = load(columns);
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r) {
        double two;
        std::memcpy(&two, x + r * kBlockKeys + i, sizeof two);
        sum[r] = Form::add(sum[r], _mm512_castpd_ps(_mm512_set1_pd(two)), v);
      }
    }
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) put(sums + r * stride, sum[r]);
  }
}

// Products of four integers: queries with an offset, which the start of a sum removes, because the
// instruction takes an unsigned operand.
struct WholeDot {
  using Whole = int8_t;
  static constexpr int64_t kPart = 4, kHead = 2;
  static constexpr int kOffset = 128;

  static void put_whole(Whole* to, Floats whole, int offset) {
    const __m512i words = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(offset));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(words));
  }
  static Floats add(Floats sum, Floats x, Floats w) {
    return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(x),
                                                   _mm512_castps_si512(w)));
  }
  static Floats score(const float* sums, Keep keep, Floats scales, Floats hidden) {
    const Floats whole = _mm512_cvtepi32_ps(_mm512_castps_si512(load(sums)));
    return _mm512_mask_mul_ps(hidden, keep, whole, scales);
  }
};

// Transposes sixteen rows of sixteen columns in place.
TESSERA_INLINE void transpose(Floats (&a)[16]) {
  Floats b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512d lo = _mm512_castps_pd(b[i + j]), hi = _mm512_castps_pd(b[i + 2 + j]);
      a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
      a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // lane l of a[4 g + i]: column 4 l + i of rows 4 g .. 4 g + 3
    const Floats x = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
                 y = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88),
                 z = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd),
                 w = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    b[i] = _mm512_shuffle_f32x4(x, y, 0x88);
    b[i + 4] = _mm512_shuffle_f32x4(z, w, 0x88);
    b[i + 8] = _mm512_shuffle_f32x4(x, y, 0xdd);
    b[i + 12] = _mm512_shuffle_f32x4(z, w, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = b[i];
}

}  // namespace

#include "kernels/wide/attention.inc"

namespace {

// Dot products of bf16 pairs: neighbouring channels of queries and keys, then neighbouring keys of
// probabilities and values.
struct Dot {
  using Element = tensor::BFloat16;
  using Scores = Dot;
  static constexpr int64_t kPart = 2, kKeyPart = 2, kHead = 0;
  static constexpr bool kInt8 = false;
  static constexpr bool kCoarse = true;
  static constexpr bool kScaled = false;

  static Floats words(const Element* from, int64_t count, float) {
    const auto keep = static_cast<__mmask32>(count >= 32 ? ~0u : (1u << count) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(keep, from));
  }
  static Floats values(const Element* v, int64_t stride, int64_t rows, Keep keep) {
    const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, v));
    if (rows < 2) return _mm512_castsi512_ps(even);
    const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, v + stride));
    return _mm512_castsi512_ps(_mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
  }
  static Floats add(Floats sum, Floats x, Floats w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
  }
  static void keep(float* scores, int i, const Floats* s) {
    if (i % 2) put(scores + i / 2 * 16, (__m512)_mm512_cvtne2ps_pbh(s[i], s[i - 1]));
  }
};

const AttentionEngine& attention_engine(DType dtype, Bf16Path unit, bool int8_scores) {
  if (int8_scores)
    return unit == Bf16Path::dot ? kEngine<Int8Scores<Dot>>
                                 : kEngine<Int8Scores<MultiplyAdd<tensor::BFloat16>>>;
  if (dtype == DType::f32) return kEngine<MultiplyAdd<float>>;
  return unit == Bf16Path::dot ? kEngine<Dot> : kEngine<MultiplyAdd<tensor::BFloat16>>;
}

}  // namespace

void attention(Bf16Path unit, const AttentionArgs& args) {
  run_attention(attention_engine(args.dtype, unit, args.int8_scores), args, {});
}
void attention(const AttentionArgs& args) { attention(active_bf16_path(), args); }

void biased_attention(Bf16Path unit, const BiasedAttentionArgs& args) {
  run_attention(attention_engine(args.dtype, unit, false), args);
}
void biased_attention(const BiasedAttentionArgs& args) {
  biased_attention(active_bf16_path(), args);
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
