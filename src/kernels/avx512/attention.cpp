#include "kernels/attention.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/avx512/flash.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

// Everything is f32 here, bf16 widened as it is packed: on Intel multiply-adds have twice the rate
// of dot products of bf16, and probabilities need no rounding.
constexpr int64_t kKeys = 64;        // of a block: four vectors of scores
constexpr int64_t kTile = 24;        // queries: whole blocks of sums whatever the columns
constexpr int64_t kTileStride = 32;  // of packed queries, from channel to channel
constexpr int64_t kTiles = 8;
constexpr int64_t kKeyBytes = int64_t{768} << 10;  // keys and values that stay in L2

constexpr int64_t padded(int64_t dim) { return ceil_div(dim, 16) * 16; }

// out[c * out_stride + r] = from[r * stride + c] * scale, sixteen rows at once; rows beyond: zeros.
template <class T>
void transpose(const T* from, int64_t stride, int64_t rows, int64_t columns, float scale,
               float* out, int64_t out_stride) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t c = 0; c < columns; c += 16) {
    __m512 a[16], b[16];
    const __mmask16 keep = lanes(columns - c);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
      a[r] = r < rows ? _mm512_mul_ps(load16(from + r * stride + c, keep), factor)
                      : _mm512_setzero_ps();
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
      const __m512 x = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
                   y = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88),
                   z = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd),
                   w = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
      b[i] = _mm512_shuffle_f32x4(x, y, 0x88);
      b[i + 4] = _mm512_shuffle_f32x4(z, w, 0x88);
      b[i + 8] = _mm512_shuffle_f32x4(x, y, 0xdd);
      b[i + 12] = _mm512_shuffle_f32x4(z, w, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if (c + i < columns) _mm512_storeu_ps(out + (c + i) * out_stride, b[i]);
  }
}

// Keys: [block][channel][64 keys]; behind them values: [key][channels, padded].
template <class T>
void pack_as(const PackedHead& head, Range blocks) {
  const AttentionArgs& a = *head.args;
  const int64_t dim = a.head_dim, pad = padded(dim), keys = head.keys();
  const T* k = static_cast<const T*>(a.k) + head.span.k_begin * a.k_stride + head.kv_head * dim;
  const T* v = static_cast<const T*>(a.v) + head.span.k_begin * a.v_stride + head.kv_head * dim;
  float* const to = reinterpret_cast<float*>(head.packed);
  float* const values = to + ceil_div(keys, kKeys) * kKeys * dim;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t first = b * kKeys, count = std::min(kKeys, keys - first);
    for (int64_t i = 0; i < count; i += 16)
      transpose(k + (first + i) * a.k_stride, a.k_stride, count - i, dim, 1, to + first * dim + i,
                kKeys);
    for (int64_t i = first; i < first + count; ++i)
      for (int64_t c = 0; c < pad; c += 16)
        _mm512_storeu_ps(values + i * pad + c, load16(v + i * a.v_stride + c, lanes(dim - c)));
  }
}
void pack(const PackedHead& head, Range blocks) {
  if (head.args->dtype == DType::f32) return pack_as<float>(head, blocks);
  pack_as<tensor::BFloat16>(head, blocks);
}
int64_t packed_bytes(int64_t dim, int64_t keys) { return (dim + padded(dim)) * keys * 4; }

// sums[R][16 C] (+)= x[R, depth] w[depth, 16 C], each sum in the order of depth.
template <int R, int C, int kRow, int kDepth, bool accumulate>
__attribute__((noinline)) void product(const float* x, const float* w, int64_t w_stride,
                                       int64_t depth, float* sums, int64_t sums_stride) {
  __m512 sum[R][C];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
      sum[r][c] =
          accumulate ? _mm512_loadu_ps(sums + r * sums_stride + c * 16) : _mm512_setzero_ps();
  for (int64_t i = 0; i < depth; ++i, x += kDepth, w += w_stride) {
    __m512 columns[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) columns[c] = _mm512_loadu_ps(w + c * 16);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512 one = _mm512_set1_ps(x[r * kRow]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] = _mm512_fmadd_ps(one, columns[c], sum[r][c]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(sums + r * sums_stride + c * 16, sum[r][c]);
}

template <int C, int kRow, int kDepth, bool accumulate>
void product_rows(int64_t rows, const float* x, const float* w, int64_t w_stride, int64_t depth,
                  float* sums, int64_t sums_stride) {
  constexpr int R = C == 1 ? 12 : 24 / C;
  for (int64_t r = 0; r < rows; r += R)
    product<R, C, kRow, kDepth, accumulate>(x + r * kRow, w, w_stride, depth,
                                            sums + r * sums_stride, sums_stride);
}

// `vectors` <= 4 columns of sixteen.
template <int kRow, int kDepth, bool accumulate>
void product_columns(int64_t vectors, int64_t rows, const float* x, const float* w,
                     int64_t w_stride, int64_t depth, float* sums, int64_t sums_stride) {
  constexpr decltype(&product_rows<1, kRow, kDepth, accumulate>) kBy[] = {
      product_rows<1, kRow, kDepth, accumulate>, product_rows<2, kRow, kDepth, accumulate>,
      product_rows<3, kRow, kDepth, accumulate>, product_rows<4, kRow, kDepth, accumulate>};
  kBy[vectors - 1](rows, x, w, w_stride, depth, sums, sums_stride);
}

// A tile of queries on its way past the keys.
struct Tile {
  float maximum[kTile];  // of score * scale * log2(e)
  float sum[kTile][16];  // of probabilities, by lane
  float* queries;        // [channel][32], scaled
  float* values;         // [query][channels, padded]
  int64_t pad;
};

__attribute__((noinline)) void rescale(Tile& tile, int64_t r, float maximum) {
  const __m512 factor = exp2(_mm512_set1_ps(tile.maximum[r] - maximum));  // 0 the first time
  tile.maximum[r] = maximum;
  _mm512_storeu_ps(tile.sum[r], _mm512_mul_ps(_mm512_loadu_ps(tile.sum[r]), factor));
  for (float* v = tile.values + r * tile.pad; v < tile.values + (r + 1) * tile.pad; v += 16)
    _mm512_storeu_ps(v, _mm512_mul_ps(_mm512_loadu_ps(v), factor));
}

// Scores of a row become probabilities, in place. Lanes from `keys` on are no keys.
template <bool coarse>
inline void softmax_row(Tile& tile, int64_t r, float* scores, int64_t keys) {
  constexpr int kVectors = kKeys / 16;
  __m512 s[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    const __mmask16 keep = lanes(keys - i * 16);
    s[i] = _mm512_mask_loadu_ps(_mm512_set1_ps(-std::numeric_limits<float>::infinity()), keep,
                                scores + i * 16);
  }
  const __m512 top = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
  if (_mm512_cmp_ps_mask(top, _mm512_set1_ps(tile.maximum[r] + kSlack), _CMP_GT_OQ)) [[unlikely]]
    rescale(tile, r, _mm512_reduce_max_ps(top));
  const __m512 maximum = _mm512_set1_ps(tile.maximum[r]);
  __m512 sum = _mm512_loadu_ps(tile.sum[r]);
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    s[i] = exp2_of<coarse>(_mm512_sub_ps(s[i], maximum));
    sum = _mm512_add_ps(sum, s[i]);
    _mm512_storeu_ps(scores + i * 16, s[i]);
  }
  _mm512_storeu_ps(tile.sum[r], sum);
}

template <class T>
void start(Tile& tile, const PackedHead& head, int64_t query_head, int64_t first, int64_t rows) {
  const AttentionArgs& a = *head.args;
  std::fill_n(tile.maximum, kTile, -std::numeric_limits<float>::infinity());
  std::memset(tile.sum, 0, sizeof tile.sum);
  std::memset(tile.values, 0, static_cast<size_t>(kTile * tile.pad) * 4);
  const T* q = static_cast<const T*>(a.q) + (head.span.q_begin + first) * a.q_stride +
               query_head * a.head_dim;
  for (int64_t r = 0; r < kTile; r += 16)
    transpose(q + r * a.q_stride, a.q_stride, rows - r, a.head_dim, a.scale * 1.44269504f,
              tile.queries + r, kTileStride);
}

// Block b of keys and values.
template <bool coarse>
void pass(Tile& tile, const PackedHead& head, int64_t rows, int64_t b, float* scores) {
  const int64_t dim = head.args->head_dim, keys = head.keys();
  const int64_t count = std::min(kKeys, keys - b * kKeys);
  const float* const k = reinterpret_cast<const float*>(head.packed) + b * kKeys * dim;
  const float* const v = reinterpret_cast<const float*>(head.packed) +
                         ceil_div(keys, kKeys) * kKeys * dim + b * kKeys * tile.pad;
  product_columns<1, kTileStride, false>(ceil_div(count, 16), rows, tile.queries, k, kKeys, dim,
                                         scores, kKeys);
  for (int64_t r = 0; r < rows; ++r) softmax_row<coarse>(tile, r, scores + r * kKeys, count);
  const int64_t vectors = tile.pad / 16, parts = ceil_div(vectors, 4);
  for (int64_t p = 0; p < parts; ++p) {
    const Range columns = share(vectors, parts, p);
    product_columns<kKeys, 1, true>(columns.size(), rows, scores, v + columns.begin * 16, tile.pad,
                                    count, tile.values + columns.begin * 16, tile.pad);
  }
}

template <class T>
void attend_as(const PackedHead& head, int64_t query_head, Range queries) {
  constexpr bool kCoarse = sizeof(T) == 2;
  const int64_t dim = head.args->head_dim, pad = padded(dim);
  const int64_t blocks = ceil_div(head.keys(), kKeys), tiles = ceil_div(queries.size(), kTile);
  const int64_t together = std::max<int64_t>(1, kKeyBytes / packed_bytes(dim, kKeys));
  const int64_t floats = dim * kTileStride + kTile * pad;
  float* const memory =
      reinterpret_cast<float*>(thread_scratch(2).at_least((kTile * kKeys + kTiles * floats) * 4));
  auto rows_of = [&](int64_t t) { return std::min(kTile, queries.size() - t * kTile); };
  const FlushSubnormals flush;
  Tile tile[kTiles];
  for (int64_t t = 0; t < tiles; ++t) {
    tile[t].queries = memory + kTile * kKeys + t * floats;
    tile[t].values = tile[t].queries + dim * kTileStride;
    tile[t].pad = pad;
    start<T>(tile[t], head, query_head, queries.begin + t * kTile, rows_of(t));
  }
  for (int64_t begin = 0; begin < blocks; begin += together)
    for (int64_t t = 0; t < tiles; ++t)
      for (int64_t b = begin; b < std::min(blocks, begin + together); ++b)
        pass<kCoarse>(tile[t], head, rows_of(t), b, memory);
  for (int64_t q = 0; q < queries.size(); ++q) {
    const Tile& t = tile[q / kTile];
    const int64_t r = q % kTile;
    finish_query(*head.args, head.span.q_begin + queries.begin + q, query_head, t.maximum[r],
                 _mm512_reduce_add_ps(_mm512_loadu_ps(t.sum[r])),
                 [&](int64_t c) { return _mm512_loadu_ps(t.values + r * pad + c); });
  }
}
void attend(const PackedHead& head, int64_t query_head, Range queries) {
  if (head.args->dtype == DType::f32) return attend_as<float>(head, query_head, queries);
  attend_as<tensor::BFloat16>(head, query_head, queries);
}

constexpr AttentionEngine kEngine{kKeys, kTile, kTiles, packed_bytes, pack, attend};

}  // namespace

void attention(const AttentionArgs& args) { run_attention(kEngine, args); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
