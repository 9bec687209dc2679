#pragma once

#include "kernels/packed_weight.h"

// Int4 weights from -8 to 7, with a bf16 scale for each group of kGroupElements neighbours of a row
// (like Q4_0 of llama.cpp with f16 scales). A scale has either sign: the element of the largest
// magnitude is near -8 times the scale.
namespace tessera::kernels {

constexpr int64_t kGroupElements = 32;
constexpr int64_t groups_of(int64_t k) { return (k + kGroupElements - 1) / kGroupElements; }

/// Panel layout of int4: [panel of 32 columns][step of 64 elements of k], and in a step [16
/// words][16 columns] of four bytes along k, with tile 0 in the low nibbles and tile 1 in the high
/// nibbles; then the scales [2 groups][32 columns]. Tails are zeros.
constexpr int64_t kNibbleBytes = kStepBytes / 2;
constexpr int64_t kGroupScaleBytes = 2 * kPanelColumns;
constexpr int64_t kNibbleStepBytes = kNibbleBytes + 2 * kGroupScaleBytes;

/// Quantises float W[n, k] to int4: u8 [n, k / 2], where byte i of a row holds elements 2 i (low)
/// and 2 i + 1 in two's complement, and bf16 scales [n, groups]. A group takes the scale with the
/// least sum of squared errors among 17; a group with NaN gets a NaN scale. Throws Error(usage) for
/// an odd k.
StoredMatrix quantise_groups(const tensor::Tensor& w);
/// Relative root mean square error of quantise_rows() or quantise_groups() on `w`.
double relative_error(const StoredMatrix& quantised, const tensor::Tensor& w);

/// True if stored as int4.
bool holds_nibbles(const StoredMatrix& w);
/// Like pack_weight(), for int4; `dtype` must be i8. `reference` keeps the stored layout.
PackedWeight pack_nibbles(const StoredMatrix& w, const StoredMatrix& up, tensor::DType dtype,
                          Isa isa);

/// Element i of a row of stored int4.
inline int nibble(const uint8_t* row, int64_t i) {
  const int four = row[i / 2] >> (i % 2 * 4) & 15;
  return (four ^ 8) - 8;
}

}  // namespace tessera::kernels
