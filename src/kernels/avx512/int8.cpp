#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <array>
#include <cstring>
#include <utility>

#include "kernels/avx512/byte_dots.h"
#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "kernels/nibbles.h"
#include "kernels/wide/stream.h"

// Products of int8 and int4 weights with int8 activations, by VNNI: four elements of k for each
// instruction and column, twice as many as bf16 dot products.
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

#include "kernels/wide/digits.inc"

namespace {

constexpr int kMostRows = 14;      // times two vectors of columns: 28 of 32 registers hold sums
constexpr int kMostGroupRows = 6;  // times the sums of a group and of all groups, times two vectors
constexpr int64_t kLine = 64;      // bytes of a step of a row
constexpr int kUnsigned = 128, kUnsignedNibble = 8;  // the instruction's offset of a weight
constexpr int kGroups = 2;                           // int4 groups in each step
constexpr int64_t kChunkBytes = 24 << 10;            // panel chunk, in L1 for all groups of rows
constexpr int64_t kGroupsToShare = 4;                // minimum number of groups for chunking

/// Each row's scale and correction, stored behind its digits.
struct RowNumbers {
  float scale;   // kInt8Largest stands for the largest magnitude
  int32_t lift;  // negated effect of kUnsigned in each weight
  int32_t unused[2];
};
static_assert(sizeof(RowNumbers) == kRowTail);

// sums[R][32] = begin[r], or the current sums, + x[R, steps] times (w + 128)[steps, 32].
template <int R>
void block(const std::byte* x, const std::byte* w, int64_t steps, int32_t* sums,
           const RowNumbers* begin, Stream& stream) {
  __m512i sum[R][2];
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t)
      sum[r][t] = begin ? _mm512_set1_epi32(begin[r].lift)
                        : _mm512_load_si512(sums + r * kPanelColumns + t * kTileColumns);
  const __m512i sign = _mm512_set1_epi8(-128);
  for (int64_t s = 0; s < steps; ++s, x += R * kLine, w += kStepBytes) {
    stream.step();
#pragma GCC unroll 4
    for (int word = 0; word < kStepWords; ++word) {
      const __m512i left = _mm512_xor_si512(_mm512_load_si512(w + word * 64), sign),
                    right =
                        _mm512_xor_si512(_mm512_load_si512(w + kStepBytes / 2 + word * 64), sign);
#pragma GCC unroll 14
      for (int r = 0; r < R; ++r) {
        const __m512i all = four_of(x + r * kLine + word * 4);
        add_dots(sum[r][0], left, all);
        add_dots(sum[r][1], right, all);
      }
    }
  }
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t)
      _mm512_store_si512(sums + r * kPanelColumns + t * kTileColumns, sum[r][t]);
}

using Block = void (*)(const std::byte*, const std::byte*, int64_t, int32_t*, const RowNumbers*,
                       Stream&);
template <size_t... R>
constexpr std::array<Block, kMostRows> blocks(std::index_sequence<R...>) {
  return {block<static_cast<int>(R) + 1>...};
}
constexpr std::array<Block, kMostRows> kBlocks = blocks(std::make_index_sequence<kMostRows>());

// Multiplies the sums of rows by both scales.
void finish(const int32_t* whole, int64_t rows, const RowNumbers* numbers, const float* scales,
            float* sums) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < kPanelColumns; c += 16, whole += 16, sums += 16)
      put(sums, mul(mul(_mm512_cvtepi32_ps(_mm512_load_si512(whole)), load(scales + c)),
                    all(numbers[r].scale)));
}

void sweep(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
           BlockWriter& writer) {
  const int64_t steps = layout.steps, groups = layout.groups(), bytes = steps * kStepBytes;
  const int64_t pages = stream_pages(layout.rows, groups, w.data.bytes());
  const int64_t most = groups >= kGroupsToShare ? kChunkBytes / kStepBytes : steps;
  const int64_t chunks = ceil_div(steps, most);
  auto* const whole =
      reinterpret_cast<int32_t*>(thread_scratch(2).at_least(layout.rows * kPanelColumns * 4));
  alignas(64) float sums[kMostRows * kPanelColumns];
  const auto* numbers = reinterpret_cast<const RowNumbers*>(x + layout.tail_at());
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = w.data.data<std::byte>() + p * bytes;
    Stream next(panel + bytes, p + 1 < panels.end ? bytes : 0, groups * steps, pages);
    for (int64_t c = 0; c < chunks; ++c) {
      const Range chunk = share(steps, chunks, c);
      for (int64_t g = 0; g < groups; ++g) {
        const Range rows = layout.group(g);
        int32_t* const here = whole + rows.begin * kPanelColumns;
        kBlocks[static_cast<size_t>(rows.size() - 1)](
            x + (rows.begin * steps + chunk.begin * rows.size()) * layout.line,
            panel + chunk.begin * kStepBytes, chunk.size(), here,
            c == 0 ? numbers + rows.begin : nullptr, next);
        if (c + 1 < chunks) continue;
        finish(here, rows.size(), numbers + rows.begin, w.scales.data<float>() + p * kPanelColumns,
               sums);
        writer.write(rows.begin, rows.size(), p, sums);
      }
    }
  }
}

int32_t sum_of_digits(const std::byte* digits, __mmask64 which) {
  const __m512i line = _mm512_maskz_loadu_epi8(which, digits);
  return _mm512_reduce_add_epi32(
      _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), line));
}

// Packs the line of each step; returns the sum of the digits.
int64_t pack_lines(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                   float largest, std::byte* out) {
  const WholeNumbers whole_of(largest);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t s = 0; s < layout.steps; ++s) {
    std::byte* const line = out + layout.offset(row, s);
    for (int64_t i = 0; i < kLine; i += 16) {
      const int64_t k = s * kLine + i;
      const __m512 v = load(source.x, source.dtype, from * source.stride + k, lanes(source.k - k));
      const __m512i whole = whole_of(v);
      sum = _mm512_add_epi32(sum, whole);
      _mm_store_si128(reinterpret_cast<__m128i*>(line + i), _mm512_cvtepi32_epi8(whole));
    }
  }
  return _mm512_reduce_add_epi32(sum);
}

void pack_int8(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
               std::byte* out) {
  const float largest = largest_magnitude(source, from);
  const int64_t sum = pack_lines(source, from, row, layout, largest, out);
  reinterpret_cast<RowNumbers*>(out + layout.tail_at())[row] = {
      largest / kInt8Largest, static_cast<int32_t>(-kUnsigned * sum), {}};
}

// sums[R][32] = x[R, steps] w[steps, 32] for int4; lifts[R][groups] is the negated effect of the
// offset 8 in each weight.
template <int R>
void group_block(const std::byte* x, const std::byte* w, int64_t steps, const int32_t* lifts,
                 float* sums, Stream& stream) {
  constexpr int kWords = kStepWords / kGroups;
  Floats all_groups[R][2];
#pragma GCC unroll 6
  for (auto& row : all_groups) row[0] = row[1] = zeros();
  const __m512i four = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(kUnsignedNibble);
  for (int64_t s = 0; s < steps; ++s, x += R * kLine, w += kNibbleStepBytes) {
    stream.step();
#pragma GCC unroll 1
    for (int g = 0; g < kGroups; ++g) {
      __m512i sum[R][2];
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
        sum[r][0] = sum[r][1] = _mm512_set1_epi32(lifts[(r * steps + s) * kGroups + g]);
#pragma GCC unroll 8
      for (int i = 0; i < kWords; ++i) {
        const int word = g * kWords + i;
        const __m512i both = _mm512_xor_si512(_mm512_load_si512(w + word * 64),
                                              _mm512_or_si512(sign, _mm512_slli_epi16(sign, 4)));
        const __m512i left = _mm512_and_si512(both, four),
                      right = _mm512_and_si512(_mm512_srli_epi16(both, 4), four);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m512i all = four_of(x + r * kLine + word * 4);
          add_dots(sum[r][0], left, all);
          add_dots(sum[r][1], right, all);
        }
      }
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const Floats scale = widen(_mm256_load_si256(reinterpret_cast<const __m256i*>(
            w + kNibbleBytes + g * kGroupScaleBytes + t * kTileColumns * 2)));
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
          all_groups[r][t] = fmadd(_mm512_cvtepi32_ps(sum[r][t]), scale, all_groups[r][t]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t) put(sums + r * kPanelColumns + t * kTileColumns, all_groups[r][t]);
}

#include "kernels/avx512/groups.inc"

template <size_t... R>
constexpr std::array<GroupBlock, kMostGroupRows> group_blocks(std::index_sequence<R...>) {
  return {group_block<static_cast<int>(R) + 1>...};
}
constexpr std::array<GroupBlock, kMostGroupRows> kGroupBlocks =
    group_blocks(std::make_index_sequence<kMostGroupRows>());

void sweep_groups(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
                  BlockWriter& writer) {
  sweep_in_groups(kGroupBlocks, x, layout, w, panels, writer);
}

void pack_groups(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                 std::byte* out) {
  const float largest = largest_magnitude(source, from);
  pack_lines(source, from, row, layout, largest, out);
  reinterpret_cast<RowNumbers*>(out + layout.tail_at())[row] = {largest / kInt8Largest, 0, {}};
  auto* lifts = reinterpret_cast<int32_t*>(out + lifts_at(layout)) + row * layout.steps * kGroups;
  for (int64_t s = 0; s < layout.steps; ++s)
    for (int g = 0; g < kGroups; ++g)
      *lifts++ = -kUnsignedNibble *
                 sum_of_digits(out + layout.offset(row, s), uint64_t{0xffffffff} << (32 * g));
}

}  // namespace

const Engine& int8_engine() {
  static constexpr Engine kEngine{kMostRows,   false,     DType::f32, sweep,
                                  row_kernels, pack_int8, 0,          1};
  return kEngine;
}

const Engine& int4_engine() {
  static constexpr Engine kEngine{kMostGroupRows, false,       DType::f32,  sweep_groups,
                                  row_kernels,    pack_groups, kGroups * 4, 1};
  return kEngine;
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
