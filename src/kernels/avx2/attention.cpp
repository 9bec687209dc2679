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

const AttentionEngine& attention_engine(DType dtype) {
  return dtype == DType::f32 ? kEngine<MultiplyAdd<float>> : kEngine<MultiplyAdd<tensor::BFloat16>>;
}

}  // namespace

void attention(const AttentionArgs& args) { run_attention(attention_engine(args.dtype), args, {}); }

void biased_attention(const BiasedAttentionArgs& args) {
  run_attention(attention_engine(args.dtype), args);
}

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
