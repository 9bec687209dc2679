#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/avx2/product.h"
#include "kernels/avx2/vector.h"
#include "kernels/nibbles.h"
#include "kernels/wide/stream.h"

// Products of int8 and int4 weights. A row is converted to 16-bit integers; weights are widened to
// 16 bits in registers. Sums of pairs of products are exact in 32 bits over 512 elements, or over a
// group of int4.
TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

#include "kernels/wide/digits.inc"

namespace {

constexpr int kMostRows = 6;        // times two vectors of columns
constexpr int64_t kExactSteps = 8;  // 512 elements: 512 * 128 * 32,639 < 2^31
constexpr int64_t kWordBytes = 8;   // elements 0, 2, 1, 3 of a word in 16 bits each
constexpr int64_t kLineBytes = kStepWords * kWordBytes;

/// Scale of each row, stored behind the row's lines.
struct RowNumbers {
  float scale;  // kLargest stands for the largest magnitude
  float unused[3];
};
static_assert(sizeof(RowNumbers) == kRowTail);

// sum + a b, over pairs.
template <bool vnni>
TESSERA_INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b) {
  if constexpr (vnni) {
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  } else {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    asm("" : "+x"(sum));
  }
  return sum;
}

// sums[R][16] (+)= x[R, steps] w[steps, 16] of a tile.
template <bool vnni, int R>
TESSERA_INLINE void block_of_tile(const std::byte* x, const std::byte* w, int64_t steps,
                                  float* sums, bool first, Stream& stream) {
  __m256i sum[R][2];
#pragma GCC unroll 6
  for (auto& row : sum) row[0] = row[1] = _mm256_setzero_si256();
  for (int64_t s = 0; s < steps; ++s, x += R * kLineBytes, w += kStepBytes) {
    stream.step();
#pragma GCC unroll 1
    for (int word = 0; word < kStepWords; ++word) {
      const auto* from = reinterpret_cast<const __m256i*>(w + word * 64);
      const __m256i left = _mm256_load_si256(from), right = _mm256_load_si256(from + 1);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i a = _mm256_srai_epi16(h ? left : _mm256_slli_epi16(left, 8), 8),
                      b = _mm256_srai_epi16(h ? right : _mm256_slli_epi16(right, 8), 8);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          int32_t pair;
          std::memcpy(&pair, x + r * kLineBytes + word * kWordBytes + h * 4, 4);
          __m256i both = _mm256_set1_epi32(pair);
          asm("" : "+x"(both), "+x"(sum[r][0]), "+x"(sum[r][1]));
          sum[r][0] = add_pairs<vnni>(sum[r][0], a, both);
          sum[r][1] = add_pairs<vnni>(sum[r][1], b, both);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r, sums += kPanelColumns) {
    const Floats whole{_mm256_cvtepi32_ps(sum[r][0]), _mm256_cvtepi32_ps(sum[r][1])};
    put(sums, first ? whole : add(load(sums), whole));
  }
}

// Same for a whole panel.
template <bool vnni, int R>
void block(const std::byte* x, const std::byte* w, int64_t steps, float* sums, bool first,
           Stream& stream) {
  for (int64_t t = 0; t < 2; ++t)
    block_of_tile<vnni, R>(x, w + t * kStepBytes / 2, steps, sums + t * 16, first, stream);
}

using Block = void (*)(const std::byte*, const std::byte*, int64_t, float*, bool, Stream&);
template <bool vnni, size_t... R>
constexpr std::array<Block, kMostRows> blocks(std::index_sequence<R...>) {
  return {block<vnni, static_cast<int>(R) + 1>...};
}
template <bool vnni>
constexpr std::array<Block, kMostRows> kBlocks =
    blocks<vnni>(std::make_index_sequence<kMostRows>());

// Multiplies integer sums by both scales.
void finish(float* sums, float row, const float* scales) {
  for (int64_t c = 0; c < kPanelColumns; c += 16)
    put(sums + c, mul(mul(load(sums + c), load(scales + c)), all(row)));
}

template <bool vnni>
void sweep(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
           BlockWriter& writer) {
  const int64_t steps = layout.steps, groups = layout.groups(), bytes = steps * kStepBytes;
  const int64_t pages = stream_pages(layout.rows, groups, w.data.bytes());
  float* const sums =
      reinterpret_cast<float*>(thread_scratch(2).at_least(layout.rows * kPanelColumns * 4));
  const auto* numbers = reinterpret_cast<const RowNumbers*>(x + layout.tail_at());
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = w.data.data<std::byte>() + p * bytes;
    const float* const scales = w.scales.data<float>() + p * kPanelColumns;
    Stream next(panel + bytes, p + 1 < panels.end ? bytes : 0, 2 * groups * steps, pages);
    for (int64_t s = 0; s < steps; s += kExactSteps)
      for (int64_t g = 0; g < groups; ++g) {
        const Range rows = layout.group(g);
        kBlocks<vnni>[static_cast<size_t>(rows.size() - 1)](
            x + (rows.begin * steps + s * rows.size()) * layout.line, panel + s * kStepBytes,
            std::min(kExactSteps, steps - s), sums + rows.begin * kPanelColumns, s == 0, next);
      }
    for (int64_t r = 0; r < layout.rows; ++r)
      finish(sums + r * kPanelColumns, numbers[r].scale, scales);
    writer.write(0, layout.rows, p, sums);
  }
}

// Rounds a row to integers up to `most`.
template <int most>
void pack_digits(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                 std::byte* out) {
  const float largest = largest_magnitude(source, from);
  const Floats inverse = all(largest > kInt8Least ? most / largest : 0);
  for (int64_t s = 0; s < layout.steps; ++s) {
    std::byte* const line = out + layout.offset(row, s);
    for (int64_t i = 0; i < kStepWords * 4; i += 16) {
      const int64_t k = s * kStepWords * 4 + i;
      const Floats v =
          mul(load(source.x, source.dtype, from * source.stride + k, lanes(source.k - k)), inverse);
      const __m256i whole = _mm256_permute4x64_epi64(
          _mm256_packs_epi32(_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high)), 0xd8);
      const __m256i words = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(whole, 0xd8), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(line + i * 2), words);
    }
  }
  reinterpret_cast<RowNumbers*>(out + layout.tail_at())[row] = {largest / most, {}};
}

// Extracts a tile's int4 values to 16-bit words, two elements each.
template <int tile, int half>
TESSERA_INLINE __m256i nibbles_of(__m256i both) {
  constexpr int kUp =
      12 - 8 * half - 4 * tile;  // shifted to the top, then down with sign extension
  if constexpr (kUp > 0) both = _mm256_slli_epi16(both, kUp);
  return _mm256_srai_epi16(both, 12);
}

// sums[R][16] = x[R, steps] w[steps, 16] of a tile.
template <bool vnni, int R, int tile>
TESSERA_INLINE void nibble_block_of_tile(const std::byte* x, const std::byte* w, int64_t steps,
                                         float* sums, Stream& stream) {
  constexpr int kGroups = 2, kWords = kStepWords / kGroups;
  for (int r = 0; r < R; ++r) put(sums + r * kPanelColumns, zeros());
  for (int64_t s = 0; s < steps; ++s, x += R * kLineBytes, w += kNibbleStepBytes) {
    stream.step();
#pragma GCC unroll 1
    for (int g = 0; g < kGroups; ++g) {
      __m256i sum[R][2];
#pragma GCC unroll 6
      for (auto& row : sum) row[0] = row[1] = _mm256_setzero_si256();
#pragma GCC unroll 1
      for (int word = g * kWords; word < (g + 1) * kWords; ++word) {
        const auto* from = reinterpret_cast<const __m256i*>(w + word * 64);
        const __m256i left = _mm256_load_si256(from), right = _mm256_load_si256(from + 1);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const __m256i a = h ? nibbles_of<tile, 1>(left) : nibbles_of<tile, 0>(left),
                        b = h ? nibbles_of<tile, 1>(right) : nibbles_of<tile, 0>(right);
#pragma GCC unroll 6
          for (int r = 0; r < R; ++r) {
            int32_t pair;
            std::memcpy(&pair, x + r * kLineBytes + word * kWordBytes + h * 4, 4);
            __m256i both = _mm256_set1_epi32(pair);
            asm("" : "+x"(both), "+x"(sum[r][0]), "+x"(sum[r][1]));
            sum[r][0] = add_pairs<vnni>(sum[r][0], a, both);
            sum[r][1] = add_pairs<vnni>(sum[r][1], b, both);
          }
        }
      }
      const Floats scale = load(reinterpret_cast<const tensor::BFloat16*>(
                                    w + kNibbleBytes + g * kGroupScaleBytes + tile * 32),
                                lanes(16));
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const Floats whole{_mm256_cvtepi32_ps(sum[r][0]), _mm256_cvtepi32_ps(sum[r][1])};
        put(sums + r * kPanelColumns, fmadd(whole, scale, load(sums + r * kPanelColumns)));
      }
    }
  }
}

// Same for a whole panel.
template <bool vnni, int R>
void nibble_block(const std::byte* x, const std::byte* w, int64_t steps, float* sums,
                  Stream& stream) {
  nibble_block_of_tile<vnni, R, 0>(x, w, steps, sums, stream);
  nibble_block_of_tile<vnni, R, 1>(x, w, steps, sums + kTileColumns, stream);
}

using NibbleBlock = void (*)(const std::byte*, const std::byte*, int64_t, float*, Stream&);
template <bool vnni, size_t... R>
constexpr std::array<NibbleBlock, kMostRows> nibble_blocks(std::index_sequence<R...>) {
  return {nibble_block<vnni, static_cast<int>(R) + 1>...};
}
template <bool vnni>
constexpr std::array<NibbleBlock, kMostRows> kNibbleBlocks =
    nibble_blocks<vnni>(std::make_index_sequence<kMostRows>());

template <bool vnni>
void sweep_nibbles(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
                   BlockWriter& writer) {
  const int64_t steps = layout.steps, groups = layout.groups(), bytes = steps * kNibbleStepBytes;
  const int64_t pages = stream_pages(layout.rows, groups, w.data.bytes());
  alignas(32) float sums[kMostRows * kPanelColumns];
  const auto* numbers = reinterpret_cast<const RowNumbers*>(x + layout.tail_at());
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = w.data.data<std::byte>() + p * bytes;
    Stream next(panel + bytes, p + 1 < panels.end ? bytes : 0, 2 * groups * steps, pages);
    for (int64_t g = 0; g < groups; ++g) {
      const Range rows = layout.group(g);
      kNibbleBlocks<vnni>[static_cast<size_t>(rows.size() - 1)](
          x + rows.begin * steps * layout.line, panel, steps, sums, next);
      scale_rows(sums, numbers + rows.begin, rows.size());
      writer.write(rows.begin, rows.size(), p, sums);
    }
  }
}

template <bool vnni, int most>
constexpr Engine kNibbleEngine{kMostRows,           false,       DType::f32,
                               sweep_nibbles<vnni>, row_kernels, pack_digits<most>};
template <bool vnni, int most>
constexpr Engine kEngine{kMostRows, false, DType::f32, sweep<vnni>, row_kernels, pack_digits<most>};

constexpr int kDigits = static_cast<int>(kLargest), kInt8 = static_cast<int>(kInt8Largest);

}  // namespace

const Engine& nibble_engine(bool vnni) {
  return vnni ? kNibbleEngine<true, kDigits> : kNibbleEngine<false, kDigits>;
}
const Engine& digit_engine(bool vnni) {
  return vnni ? kEngine<true, kDigits> : kEngine<false, kDigits>;
}
const Engine& int4_engine(bool vnni) {
  return vnni ? kNibbleEngine<true, kInt8> : kNibbleEngine<false, kInt8>;
}
const Engine& int8_engine(bool vnni) { return vnni ? kEngine<true, kInt8> : kEngine<false, kInt8>; }

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
