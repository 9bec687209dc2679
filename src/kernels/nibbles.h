#pragma once

#include "kernels/packed_weight.h"

// Weights in whole numbers of 4 bits, from -8 to 7, with a scale in bf16 for each group of
// kGroupElements neighbours of a row (as Q4_0 of llama.cpp has it, there in f16). A scale of either
// sign: the element of the largest magnitude is near -8 times it.
namespace tessera::kernels {

constexpr int64_t kGroupElements = 32;
constexpr int64_t groups_of(int64_t k) { return (k + kGroupElements - 1) / kGroupElements; }

/// The panel layout of nibbles: [panel of 32 columns][step of 64 elements of k], and in a step [16
/// words][16 columns] of four bytes along k, whose low nibbles are tile 0 and whose high ones are
/// tile 1; behind these the scales [2 groups][32 columns]. Tails are zeros.
constexpr int64_t kNibbleBytes = kStepBytes / 2;
constexpr int64_t kGroupScaleBytes = 2 * kPanelColumns;
constexpr int64_t kNibbleStepBytes = kNibbleBytes + 2 * kGroupScaleBytes;

/// W[n, k] of floats in nibbles: u8 [n, k / 2], of which byte i of a row holds the elements 2 i
/// (the low one) and 2 i + 1 in two's complement, and bf16 scales [n, groups]. Of 17 scales a group
/// takes the one of the least sum of squared errors; a group that holds what is no number has one
/// that is none. Throws Error(usage) for an odd k.
StoredMatrix quantise_groups(const tensor::Tensor& w);
/// The root of the mean squared error of what quantise_rows() or quantise_groups() made of `w`, as
/// a share of the root of the mean square of `w`.
double relative_error(const StoredMatrix& quantised, const tensor::Tensor& w);

/// Whether it is stored so.
bool holds_nibbles(const StoredMatrix& w);
/// As pack_weight(), for what is stored so; `dtype` must be i8. Of `reference`: as it is stored.
PackedWeight pack_nibbles(const StoredMatrix& w, const StoredMatrix& up, tensor::DType dtype,
                          Isa isa);

/// Element i of a row of stored nibbles.
inline int nibble(const uint8_t* row, int64_t i) {
  const int four = row[i / 2] >> (i % 2 * 4) & 15;
  return (four ^ 8) - 8;
}

}  // namespace tessera::kernels
