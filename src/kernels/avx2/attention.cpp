#include "kernels/attention.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/avx2/product.h"
#include "kernels/avx2/vector.h"
#include "kernels/wide/flash.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {
namespace {

constexpr int kColumns = 1;
template <int columns>
constexpr int kRows = 6;

constexpr int64_t kHalfWords = 1;
template <class>
void add_half(int64_t rows, const float* x, const float* w, int64_t stride, int64_t depth,
              float* sums, bool first) {
  constexpr int R = 12;
  for (int64_t row = 0; row < rows; row += R, x += R * kBlockKeys, sums += R * stride) {
    __m256 sum[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      sum[r] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(sums + r * stride);
    const float* columns = w;
    for (int64_t i = 0; i < depth; ++i, columns += stride) {
      const __m256 v = _mm256_loadu_ps(columns);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r)
        sum[r] = _mm256_fmadd_ps(_mm256_broadcast_ss(x + r * kBlockKeys + i), v, sum[r]);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) _mm256_storeu_ps(sums + r * stride, sum[r]);
  }
}
Floats half_row(Floats word, Floats) { return word; }
Floats half_sums(Floats sums) { return sums; }

// Products of two integers of 16 bits: maddubs would saturate.
struct WholeDot {
  using Whole = int16_t;
  static constexpr int64_t kPart = 2, kHead = 2;
  static constexpr int kOffset = 0;

  static void put_whole(Whole* to, Floats whole, int) {
    const __m256i words =
        _mm256_packs_epi32(_mm256_cvtps_epi32(whole.low), _mm256_cvtps_epi32(whole.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(words, 0xd8));
  }
  static __m256 add(__m256 sum, __m256 x, __m256 w) {
    const __m256i products = _mm256_madd_epi16(_mm256_castps_si256(x), _mm256_castps_si256(w));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), products));
  }
  static Floats add(Floats sum, Floats x, Floats w) {
    return {add(sum.low, x.low, w.low), add(sum.high, x.high, w.high)};
  }
  static Floats score(const float* sums, Keep keep, Floats scales, Floats hidden) {
    const Floats bits = load(sums);
    const Floats scores = mul({_mm256_cvtepi32_ps(_mm256_castps_si256(bits.low)),
                               _mm256_cvtepi32_ps(_mm256_castps_si256(bits.high))},
                              scales);
    const Mask mask = mask_of(keep);
    return {_mm256_blendv_ps(hidden.low, scores.low, _mm256_castsi256_ps(mask.low)),
            _mm256_blendv_ps(hidden.high, scores.high, _mm256_castsi256_ps(mask.high))};
  }
};

TESSERA_INLINE void transpose(__m256 (&a)[8]) {
  __m256 b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + 2 + j], 0x44);
      a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + 2 + j], 0xee);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20);
    b[i + 4] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) a[i] = b[i];
}

// Transposes sixteen rows of sixteen columns in place, by quarters of eight.
void transpose(Floats (&a)[16]) {
  __m256 quarter[8];
  Floats to[16];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) quarter[i] = q % 2 ? a[q / 2 * 8 + i].high : a[q / 2 * 8 + i].low;
    transpose(quarter);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      (q / 2 ? to[q % 2 * 8 + i].high : to[q % 2 * 8 + i].low) = quarter[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = to[i];
}

}  // namespace

#include "kernels/wide/attention.inc"

namespace {

const AttentionEngine& attention_engine(DType dtype, bool int8_scores) {
  if (int8_scores) return kEngine<Int8Scores<MultiplyAdd<tensor::BFloat16>>>;
  return dtype == DType::f32 ? kEngine<MultiplyAdd<float>> : kEngine<MultiplyAdd<tensor::BFloat16>>;
}

}  // namespace

void attention(const AttentionArgs& args) {
  run_attention(attention_engine(args.dtype, args.int8_scores), args, {});
}

void biased_attention(const BiasedAttentionArgs& args) {
  run_attention(attention_engine(args.dtype, false), args);
}

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
