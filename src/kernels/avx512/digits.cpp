#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <array>
#include <cstring>
#include <utility>

#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "kernels/nibbles.h"
#include "kernels/wide/stream.h"

// Products of int8 and int4 weights by VNNI. A row is converted to 16-bit integers, split into two
// 8-bit digits. The sums are exact (for int4 within a group). The instruction count equals bf16 dot
// products, without widening weights.
TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

#include "kernels/wide/digits.inc"

namespace {

constexpr int kMostRows = 7;         // times two digits, times two vectors of columns
constexpr int64_t kDigitBytes = 64;  // bytes of a step of a row: high digits, then low digits
constexpr int kUnsigned = 128;       // the instruction takes w + 128

/// Scale and correction of each row, stored behind the row's lines.
struct RowNumbers {
  float scale;        // kLargest stands for the largest magnitude
  int32_t high, low;  // 128 times the sums of the digits
  int32_t unused;
};
static_assert(sizeof(RowNumbers) == kRowTail);

struct Digits {
  __m512i high, low;

  // Splits integers: 256 high + low.
  explicit Digits(__m512i whole)
      : high(_mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(128)), 8)),
        low(_mm512_sub_epi32(whole, _mm512_slli_epi32(high, 8))) {}
};

// sums[R][digit][32] = digits of x[R, steps] times (w + 128)[steps, 32].
template <int R>
void block(const std::byte* x, const std::byte* w, int64_t steps, int32_t* sums, Stream& stream) {
  __m512i sum[R][2][2];
#pragma GCC unroll 7
  for (auto& row : sum)
#pragma GCC unroll 2
    for (auto& digit : row) digit[0] = digit[1] = _mm512_setzero_si512();
  const __m512i sign = _mm512_set1_epi8(-128);
  for (int64_t s = 0; s < steps; ++s, x += R * 2 * kDigitBytes, w += kStepBytes) {
    stream.step();
#pragma GCC unroll 4
    for (int word = 0; word < kStepWords; ++word) {
      const __m512i left = _mm512_xor_si512(_mm512_load_si512(w + word * 64), sign),
                    right =
                        _mm512_xor_si512(_mm512_load_si512(w + kStepBytes / 2 + word * 64), sign);
#pragma GCC unroll 7
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int d = 0; d < 2; ++d) {
          int32_t four;
          std::memcpy(&four, x + (2 * r + d) * kDigitBytes + word * 4, 4);
          const __m512i all = _mm512_set1_epi32(four);
          sum[r][d][0] = _mm512_dpbusd_epi32(sum[r][d][0], left, all);
          sum[r][d][1] = _mm512_dpbusd_epi32(sum[r][d][1], right, all);
        }
    }
  }
#pragma GCC unroll 7
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int d = 0; d < 2; ++d)
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t)
        _mm512_store_si512(sums + (2 * r + d) * kPanelColumns + t * 16, sum[r][d][t]);
}

using Block = void (*)(const std::byte*, const std::byte*, int64_t, int32_t*, Stream&);
template <size_t... R>
constexpr std::array<Block, kMostRows> blocks(std::index_sequence<R...>) {
  return {block<static_cast<int>(R) + 1>...};
}
constexpr std::array<Block, kMostRows> kBlocks = blocks(std::make_index_sequence<kMostRows>());

// Combines both digits of a row, subtracts the offset of 128 in each weight, and multiplies by both
// scales.
void finish(const int32_t* digits, const RowNumbers& row, const float* scales, float* sums) {
  for (int64_t c = 0; c < kPanelColumns; c += 16) {
    const __m512 high = _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_load_si512(digits + c), _mm512_set1_epi32(row.high)));
    const __m512 low = _mm512_cvtepi32_ps(_mm512_sub_epi32(
        _mm512_load_si512(digits + kPanelColumns + c), _mm512_set1_epi32(row.low)));
    const __m512 both = _mm512_fmadd_ps(high, _mm512_set1_ps(256), low);
    _mm512_store_ps(sums + c, _mm512_mul_ps(_mm512_mul_ps(both, _mm512_loadu_ps(scales + c)),
                                            _mm512_set1_ps(row.scale)));
  }
}

void sweep(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
           BlockWriter& writer) {
  const int64_t steps = layout.steps, groups = layout.groups(), bytes = steps * kStepBytes;
  const int64_t pages = stream_pages(layout.rows, groups, w.data.bytes());
  alignas(64) int32_t digits[kMostRows * 2 * kPanelColumns];
  alignas(64) float sums[kMostRows * kPanelColumns];
  const auto* numbers = reinterpret_cast<const RowNumbers*>(x + layout.tail_at());
  const float* const scales = w.scales.data<float>();
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = w.data.data<std::byte>() + p * bytes;
    Stream next(panel + bytes, p + 1 < panels.end ? bytes : 0, groups * steps, pages);
    for (int64_t g = 0; g < groups; ++g) {
      const Range rows = layout.group(g);
      kBlocks[static_cast<size_t>(rows.size() - 1)](x + rows.begin * steps * layout.line, panel,
                                                    steps, digits, next);
      for (int64_t r = 0; r < rows.size(); ++r)
        finish(digits + r * 2 * kPanelColumns, numbers[rows.begin + r], scales + p * kPanelColumns,
               sums + r * kPanelColumns);
      writer.write(rows.begin, rows.size(), p, sums);
    }
  }
}

void pack_digits(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                 std::byte* out) {
  const float largest = largest_magnitude(source, from);
  const __m512 inverse = _mm512_set1_ps(largest > kInt8Least ? kLargest / largest : 0);
  __m512i high = _mm512_setzero_si512(), low = high;
  for (int64_t s = 0; s < layout.steps; ++s) {
    std::byte* const line = out + layout.offset(row, s);
    for (int64_t i = 0; i < kDigitBytes; i += 16) {
      const int64_t k = s * kDigitBytes + i;
      const __m512 v = load(source.x, source.dtype, from * source.stride + k, lanes(source.k - k));
      const Digits digits(_mm512_cvtps_epi32(_mm512_mul_ps(v, inverse)));
      high = _mm512_add_epi32(high, digits.high);
      low = _mm512_add_epi32(low, digits.low);
      _mm_store_si128(reinterpret_cast<__m128i*>(line + i), _mm512_cvtepi32_epi8(digits.high));
      _mm_store_si128(reinterpret_cast<__m128i*>(line + kDigitBytes + i),
                      _mm512_cvtepi32_epi8(digits.low));
    }
  }
  const auto sum_of_digits = [](__m512i digits) {  // overflow only in rows with NaN
    return static_cast<int32_t>(static_cast<uint32_t>(kUnsigned) *
                                static_cast<uint32_t>(_mm512_reduce_add_epi32(digits)));
  };
  reinterpret_cast<RowNumbers*>(out + layout.tail_at())[row] = {
      largest / kLargest, sum_of_digits(high), sum_of_digits(low), 0};
}

constexpr int kMostNibbleRows = 4;  // times two digits, and a sum of groups, times two vectors
constexpr int kGroups = 2;          // groups of a step
constexpr int kUnsignedNibble = 8;  // the instruction takes w + 8

// sum + w x in assembly, because the compiler would move the sums.
TESSERA_INLINE void add_dots(__m512i& sum, __m512i w, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
}

// sums[R][32] = x[R, steps] w[steps, 32]; lifts[R][groups] is the negated effect of the offset 8 in
// each weight.
template <int R>
void nibble_block(const std::byte* x, const std::byte* w, int64_t steps, const int32_t* lifts,
                  float* sums, Stream& stream) {
  constexpr int kWords = kStepWords / kGroups;
  Floats all_groups[R][2];
#pragma GCC unroll 4
  for (auto& row : all_groups) row[0] = row[1] = zeros();
  const __m512i four = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(kUnsignedNibble);
  for (int64_t s = 0; s < steps; ++s, x += R * 2 * kDigitBytes, w += kNibbleStepBytes) {
    stream.step();
#pragma GCC unroll 1
    for (int g = 0; g < kGroups; ++g) {
      __m512i sum[R][2][2];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r][0][0] = sum[r][0][1] = _mm512_setzero_si512();
        sum[r][1][0] = sum[r][1][1] = _mm512_set1_epi32(lifts[(r * steps + s) * kGroups + g]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kWords; ++i) {
        const int word = g * kWords + i;
        const __m512i both = _mm512_load_si512(w + word * 64);
        const __m512i left = _mm512_xor_si512(_mm512_and_si512(both, four), sign),
                      right = _mm512_xor_si512(_mm512_and_si512(_mm512_srli_epi16(both, 4), four),
                                               sign);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
          for (int d = 0; d < 2; ++d) {
            int32_t digits;
            std::memcpy(&digits, x + (2 * r + d) * kDigitBytes + word * 4, 4);
            const __m512i all = _mm512_set1_epi32(digits);
            add_dots(sum[r][d][0], left, all);
            add_dots(sum[r][d][1], right, all);
          }
      }
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const Floats scale = widen(_mm256_load_si256(reinterpret_cast<const __m256i*>(
            w + kNibbleBytes + g * kGroupScaleBytes + t * kTileColumns * 2)));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(sum[r][0][t], 8), sum[r][1][t]);
          all_groups[r][t] = fmadd(_mm512_cvtepi32_ps(whole), scale, all_groups[r][t]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t) put(sums + r * kPanelColumns + t * kTileColumns, all_groups[r][t]);
}

#include "kernels/avx512/groups.inc"

template <size_t... R>
constexpr std::array<GroupBlock, kMostNibbleRows> nibble_blocks(std::index_sequence<R...>) {
  return {nibble_block<static_cast<int>(R) + 1>...};
}
constexpr std::array<GroupBlock, kMostNibbleRows> kNibbleBlocks =
    nibble_blocks(std::make_index_sequence<kMostNibbleRows>());

void sweep_nibbles(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
                   BlockWriter& writer) {
  sweep_in_groups(kNibbleBlocks, x, layout, w, panels, writer);
}

void pack_lifted_digits(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                        std::byte* out) {
  pack_digits(source, from, row, layout, out);
  auto* lifts = reinterpret_cast<int32_t*>(out + lifts_at(layout)) + row * layout.steps * kGroups;
  const __m256i ones = _mm256_set1_epi8(1);
  const auto sum_of_digits = [&](const std::byte* digits) {
    const __m256i sums = _mm256_dpbusd_epi32(
        _mm256_setzero_si256(), ones, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(digits)));
    return _mm512_reduce_add_epi32(_mm512_zextsi256_si512(sums));
  };
  for (int64_t s = 0; s < layout.steps; ++s)
    for (int g = 0; g < kGroups; ++g) {
      const std::byte* const digits = out + layout.offset(row, s) + g * kGroupElements;
      *lifts++ =
          -kUnsignedNibble * (256 * sum_of_digits(digits) + sum_of_digits(digits + kDigitBytes));
    }
}

}  // namespace

const Engine& nibble_engine() {
  static constexpr Engine kEngine{kMostNibbleRows, false,       DType::f32,
                                  sweep_nibbles,   row_kernels, pack_lifted_digits,
                                  kGroups * 4};
  return kEngine;
}

const Engine& digit_engine() {
  static constexpr Engine kEngine{kMostRows, false, DType::f32, sweep, row_kernels, pack_digits};
  return kEngine;
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
