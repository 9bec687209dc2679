#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace tessera::kernels::avx512 {

/// Layout of a packed filter: [block of 64 output channels][tap][word of k][columns]. A word is one
/// f32, two bf16 or four i8 plus kConvOffset (kernels/avx512/byte_dots.h) along the input channels,
/// padded with zeros. The last block's columns are rounded up to 16.
constexpr int64_t kConvColumns = 64;
constexpr int kConvOffset = 128;

/// Sizes of the filter layout.
struct ConvPanels {
  int64_t out, taps, per_word, words;

  ConvPanels(int64_t out_channels, int64_t in, int64_t tap_count, tensor::DType dtype)
      : out(out_channels),
        taps(tap_count),
        per_word(4 / tensor::size_of(dtype)),
        words((in + per_word - 1) / per_word) {}
  /// Input channels with padding.
  int64_t in_padded() const { return words * per_word; }
  int64_t blocks() const { return (out + kConvColumns - 1) / kConvColumns; }
  /// Columns of a block, with padding: 16, 32, 48 or 64.
  int64_t columns(int64_t block) const {
    const int64_t left = out - block * kConvColumns;
    return left >= kConvColumns ? kConvColumns : (left + 15) / 16 * 16;
  }
  int64_t elements() const {
    const int64_t last = blocks() - 1;
    return out == 0 ? 0 : at(last, taps, 0, 0, 0);
  }
  /// Index of channel `i` of a word, a column, a word, a tap.
  int64_t at(int64_t block, int64_t tap, int64_t word, int64_t column, int64_t i) const {
    return block * kConvColumns * taps * in_padded() +
           ((tap * words + word) * columns(block) + column) * per_word + i;
  }
};

/// Allocates on meta the 2 x 2 filters derived from a 3 x 3 filter for doubled inputs.
void derive_on_meta(const PackedConv& weight);

}  // namespace tessera::kernels::avx512
