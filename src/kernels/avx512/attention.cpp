#include "kernels/attention.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/avx512/flash.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr int64_t kKeys = 64;        // of a block: four vectors of scores
constexpr int64_t kTile = 24;        // queries: whole blocks of sums whatever the columns
constexpr int64_t kTileStride = 32;  // of packed queries, from word of channels to word of channels
constexpr int64_t kTiles = 8;
constexpr int64_t kKeyBytes = int64_t{768} << 10;  // keys and values that stay in L2
constexpr float kLog2E = 1.44269504f;

constexpr int64_t padded(int64_t dim) { return ceil_div(dim, 16) * 16; }

// Fused multiply-adds: everything is f32, bf16 widened as it is packed; no probability is rounded.
template <class T>
struct MultiplyAdd {
  using Element = T;
  static constexpr int64_t kPart = 1;  // channels, or keys, of a word of 32 bits
  static constexpr bool kCoarse = sizeof(T) == 2;
  static constexpr bool kScaled = true;  // queries are packed with the scale

  static __m512 words(const T* from, int64_t count, float scale) {
    return _mm512_mul_ps(load16(from, lanes(count)), _mm512_set1_ps(scale));
  }
  static __m512 values(const T* v, int64_t, int64_t, __mmask16 keep) { return load16(v, keep); }
  static __m512 add(__m512 sum, __m512 x, __m512 w) { return _mm512_fmadd_ps(x, w, sum); }
};

// Dot products of pairs of bf16: neighbouring channels of queries and keys, then neighbouring keys
// of probabilities and values.
struct Dot {
  using Element = tensor::BFloat16;
  static constexpr int64_t kPart = 2;
  static constexpr bool kCoarse = true;
  static constexpr bool kScaled = false;

  static __m512 words(const Element* from, int64_t count, float) {
    const auto keep = static_cast<__mmask32>(count >= 32 ? ~0u : (1u << count) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(keep, from));
  }
  static __m512 values(const Element* v, int64_t stride, int64_t rows, __mmask16 keep) {
    const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, v));
    if (rows < 2) return _mm512_castsi512_ps(even);
    const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, v + stride));
    return _mm512_castsi512_ps(_mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
  }
  static __m512 add(__m512 sum, __m512 x, __m512 w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
  }
};

// out[w * out_stride + r] = word w of row r, sixteen rows at once; rows beyond: zeros.
template <class Form>
void transpose(const typename Form::Element* from, int64_t stride, int64_t rows, int64_t columns,
               float scale, float* out, int64_t out_stride) {
  const int64_t all = ceil_div(columns, Form::kPart);
  for (int64_t c = 0; c < all; c += 16) {
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
      a[r] = r < rows ? Form::words(from + r * stride + c * Form::kPart, columns - c * Form::kPart,
                                    scale)
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
      if (c + i < all) _mm512_storeu_ps(out + (c + i) * out_stride, b[i]);
  }
}

// Keys: [block][word of channels][keys of a block]; behind them values: [word of keys][channels,
// padded]. Keys that are not there are zeros among the values.
template <class Form>
void pack(const PackedHead& head, Range blocks) {
  using T = typename Form::Element;
  constexpr int64_t kPart = Form::kPart;
  const AttentionArgs& a = *head.args;
  const int64_t dim = a.head_dim, pad = padded(dim), keys = head.keys();
  const int64_t words = ceil_div(dim, kPart);
  const T* k = static_cast<const T*>(a.k) + head.span.k_begin * a.k_stride + head.kv_head * dim;
  const T* v = static_cast<const T*>(a.v) + head.span.k_begin * a.v_stride + head.kv_head * dim;
  float* const to = reinterpret_cast<float*>(head.packed);
  float* const values = to + ceil_div(keys, kKeys) * kKeys * words;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t first = b * kKeys, count = std::min(kKeys, keys - first);
    for (int64_t i = 0; i < count; i += 16)
      transpose<Form>(k + (first + i) * a.k_stride, a.k_stride, count - i, dim, 1,
                      to + first * words + i, kKeys);
    for (int64_t i = first; i < first + count; i += kPart)
      for (int64_t c = 0; c < pad; c += 16)
        _mm512_storeu_ps(
            values + i / kPart * pad + c,
            Form::values(v + i * a.v_stride + c, a.v_stride, keys - i, lanes(dim - c)));
  }
}
template <class Form>
int64_t packed_bytes(int64_t dim, int64_t keys) {
  return (ceil_div(dim, Form::kPart) * keys + padded(dim) * (keys / Form::kPart)) * 4;
}

// sums[R][16 C] (+)= x[R, depth] w[depth, 16 C], each sum in the order of depth.
template <class Form, int R, int C, int kRow, int kDepth, bool accumulate>
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
      for (int c = 0; c < C; ++c) sum[r][c] = Form::add(sum[r][c], one, columns[c]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(sums + r * sums_stride + c * 16, sum[r][c]);
}

template <class Form, int C, int kRow, int kDepth, bool accumulate>
void product_rows(int64_t rows, const float* x, const float* w, int64_t w_stride, int64_t depth,
                  float* sums, int64_t sums_stride) {
  constexpr int R = C == 1 ? 12 : 24 / C;
  for (int64_t r = 0; r < rows; r += R)
    product<Form, R, C, kRow, kDepth, accumulate>(x + r * kRow, w, w_stride, depth,
                                                  sums + r * sums_stride, sums_stride);
}

// `vectors` <= 4 columns of sixteen.
template <class Form, int kRow, int kDepth, bool accumulate>
void product_columns(int64_t vectors, int64_t rows, const float* x, const float* w,
                     int64_t w_stride, int64_t depth, float* sums, int64_t sums_stride) {
  constexpr decltype(&product_rows<Form, 1, kRow, kDepth, accumulate>) kBy[] = {
      product_rows<Form, 1, kRow, kDepth, accumulate>,
      product_rows<Form, 2, kRow, kDepth, accumulate>,
      product_rows<Form, 3, kRow, kDepth, accumulate>,
      product_rows<Form, 4, kRow, kDepth, accumulate>};
  kBy[vectors - 1](rows, x, w, w_stride, depth, sums, sums_stride);
}

// A tile of queries on its way past the keys.
struct Tile {
  float maximum[kTile];  // of score * scale * log2(e)
  float sum[kTile][16];  // of probabilities, by lane
  float factor;          // from scores to powers of two
  float bias_factor;     // from biases to what scores are before it
  float* queries;        // [word of channels][32]
  float* values;         // [query][channels, padded]
  int64_t pad;
};

__attribute__((noinline)) void rescale(Tile& tile, int64_t r, float maximum) {
  const __m512 factor = exp2(_mm512_set1_ps(tile.maximum[r] - maximum));
  tile.maximum[r] = maximum;
  _mm512_storeu_ps(tile.sum[r], _mm512_mul_ps(_mm512_loadu_ps(tile.sum[r]), factor));
  for (float* v = tile.values + r * tile.pad; v < tile.values + (r + 1) * tile.pad; v += 16)
    _mm512_storeu_ps(v, _mm512_mul_ps(_mm512_loadu_ps(v), factor));
}

// Scores of a row become probabilities, in place: of the form's element. Lanes from `keys` on are
// no keys. `factor` takes scores to powers of two, where the queries did not bring it.
template <class Form>
inline void softmax_row(Tile& tile, int64_t r, float* scores, int64_t keys, const float* bias,
                        bool first) {
  constexpr int kVectors = kKeys / 16;
  __m512 s[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    const __mmask16 keep = lanes(keys - i * 16);
    s[i] = _mm512_mask_loadu_ps(_mm512_set1_ps(-std::numeric_limits<float>::infinity()), keep,
                                scores + i * 16);
    if (bias)
      s[i] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(keep, bias + i * 16),
                             _mm512_set1_ps(tile.bias_factor), s[i]);
  }
  __m512 top = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
  const __m512 factor = _mm512_set1_ps(tile.factor);
  if constexpr (!Form::kScaled) top = _mm512_mul_ps(top, factor);
  if (first)
    tile.maximum[r] = _mm512_reduce_max_ps(top);
  else if (_mm512_cmp_ps_mask(top, _mm512_set1_ps(tile.maximum[r] + kSlack), _CMP_GT_OQ))
      [[unlikely]]
    rescale(tile, r, _mm512_reduce_max_ps(top));
  const __m512 maximum = _mm512_set1_ps(tile.maximum[r]);
  __m512 sum = first ? _mm512_setzero_ps() : _mm512_loadu_ps(tile.sum[r]);
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (Form::kScaled)
      s[i] = exp2_of<Form::kCoarse>(_mm512_sub_ps(s[i], maximum));
    else
      s[i] = exp2_of<Form::kCoarse>(_mm512_fmsub_ps(s[i], factor, maximum));
    sum = _mm512_add_ps(sum, s[i]);
    if constexpr (Form::kPart == 1) _mm512_storeu_ps(scores + i * 16, s[i]);
    if constexpr (Form::kPart == 2)
      if (i % 2) _mm512_storeu_ps(scores + i / 2 * 16, (__m512)_mm512_cvtne2ps_pbh(s[i], s[i - 1]));
  }
  _mm512_storeu_ps(tile.sum[r], sum);
}

template <class Form>
void start(Tile& tile, const PackedHead& head, int64_t query_head, int64_t first, int64_t rows) {
  const AttentionArgs& a = *head.args;
  tile.factor = a.scale * kLog2E;
  tile.bias_factor = Form::kScaled ? kLog2E : 1 / a.scale;
  const auto* q = static_cast<const typename Form::Element*>(a.q) +
                  (head.span.q_begin + first) * a.q_stride + query_head * a.head_dim;
  for (int64_t r = 0; r < kTile; r += 16)
    transpose<Form>(q + r * a.q_stride, a.q_stride, rows - r, a.head_dim, tile.factor,
                    tile.queries + r, kTileStride);
}

// Block b of keys and values. `bias`: of the first query of the tile and the first key of the span.
template <class Form>
void pass(Tile& tile, const PackedHead& head, int64_t rows, int64_t b, float* scores,
          const float* bias) {
  constexpr int64_t kPart = Form::kPart;
  const int64_t keys = head.keys(), count = std::min(kKeys, keys - b * kKeys);
  const int64_t words = ceil_div(head.args->head_dim, kPart);
  const float* const k = reinterpret_cast<const float*>(head.packed) + b * kKeys * words;
  const float* const v = reinterpret_cast<const float*>(head.packed) +
                         ceil_div(keys, kKeys) * kKeys * words + b * (kKeys / kPart) * tile.pad;
  product_columns<Form, 1, kTileStride, false>(ceil_div(count, 16), rows, tile.queries, k, kKeys,
                                               words, scores, kKeys);
  for (int64_t r = 0; r < rows; ++r)
    softmax_row<Form>(tile, r, scores + r * kKeys, count, bias ? bias + b * kKeys - r : nullptr,
                      b == 0);
  const int64_t vectors = tile.pad / 16, parts = ceil_div(vectors, 4);
  for (int64_t p = 0; p < parts; ++p) {
    const Range columns = share(vectors, parts, p);
    const auto add =
        b == 0 ? product_columns<Form, kKeys, 1, false> : product_columns<Form, kKeys, 1, true>;
    add(columns.size(), rows, scores, v + columns.begin * 16, tile.pad, ceil_div(count, kPart),
        tile.values + columns.begin * 16, tile.pad);
  }
}

template <class Form>
void attend(const PackedHead& head, int64_t query_head, Range queries) {
  const int64_t dim = head.args->head_dim, pad = padded(dim);
  const int64_t blocks = ceil_div(head.keys(), kKeys);
  const int64_t tiles = ceil_div(queries.size(), kTile);
  const int64_t together = std::max<int64_t>(1, kKeyBytes / packed_bytes<Form>(dim, kKeys));
  const int64_t words = ceil_div(dim, Form::kPart), floats = words * kTileStride + kTile * pad;
  constexpr int64_t kScores = kTile * kKeys;
  float* const memory =
      reinterpret_cast<float*>(thread_scratch(2).at_least((kScores + kTiles * floats) * 4));
  auto rows_of = [&](int64_t t) { return std::min(kTile, queries.size() - t * kTile); };
  const FlushSubnormals flush;
  Tile tile[kTiles];
  for (int64_t t = 0; t < tiles; ++t) {
    tile[t].queries = memory + kScores + t * floats;
    tile[t].values = tile[t].queries + words * kTileStride;
    tile[t].pad = pad;
    start<Form>(tile[t], head, query_head, queries.begin + t * kTile, rows_of(t));
  }
  for (int64_t begin = 0; begin < blocks; begin += together)
    for (int64_t t = 0; t < tiles; ++t)
      for (int64_t b = begin; b < std::min(blocks, begin + together); ++b)
        pass<Form>(tile[t], head, rows_of(t), b, memory,
                   head.bias_of(query_head, queries.begin + t * kTile));
  for (int64_t q = 0; q < queries.size(); ++q) {
    const Tile& t = tile[q / kTile];
    const int64_t r = q % kTile;
    finish_query(*head.args, head.span.q_begin + queries.begin + q, query_head, t.maximum[r],
                 _mm512_reduce_add_ps(_mm512_loadu_ps(t.sum[r])),
                 [&](int64_t c) { return _mm512_loadu_ps(t.values + r * pad + c); });
  }
}

template <class Form>
constexpr AttentionEngine kEngine{kKeys,      kTile,       kTiles, packed_bytes<Form>,
                                  pack<Form>, attend<Form>};

}  // namespace

const AttentionEngine& attention_engine(DType dtype, Unit unit) {
  if (dtype == DType::f32) return kEngine<MultiplyAdd<float>>;
  return unit == Unit::dot ? kEngine<Dot> : kEngine<MultiplyAdd<tensor::BFloat16>>;
}

void attention(Unit unit, const AttentionArgs& args) {
  run_attention(attention_engine(args.dtype, unit), args, {});
}
void attention(const AttentionArgs& args) { attention(active_unit(), args); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
