#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/isa.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

struct LowRank;

/// A weight matrix W[n, k] packed for one instruction set.
/// `reference`: row major [n, k] (paired: [2n, k], gate rows first).
/// `avx2`, `avx512` and `amx` share one layout, see kPanelColumns.
struct PackedWeight {
  int64_t n = 0;  ///< columns of the result (paired: of one of the two)
  int64_t k = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< f32, bf16 or i8
  Isa isa = Isa::reference;
  bool paired = false;      ///< gate and up side by side, for SwiGLU
  tensor::Tensor data;      ///< meta: shape only
  tensor::Tensor scales{};  ///< of i8: f32, one a column, in the order of the columns of `data`
  bool int4 = false;        ///< of i8: whole numbers of 4 bits by groups, see kernels/nibbles.h
  bool int8_rows = false;   ///< of i8: for int8 activations, see kInt8Largest
  std::shared_ptr<const LowRank> low{};  ///< what products add to theirs; null: nothing

  int64_t bytes() const { return data.bytes() + (scales.defined() ? scales.bytes() : 0); }
};

/// A change of rank r of a matrix W[n, k], beside it (LoRA, Hu et al. 2021, section 4.1): products
/// are x W^T + (x down^T) up^T, summed in f32 before anything else is done to them.
struct LowRank {
  PackedWeight down;  ///< [r, k]
  PackedWeight up;    ///< f32 [n, r], paired as W is; packed for the instruction set of W
};

/// The panel layout: [panel of 32 columns][step][tile of 16 columns][16 words of k][16 columns],
/// where a word is 32 bits: one f32, two bf16 or four i8 along k. Tails are zeros. A paired
/// panel holds 16 gate columns (tile 0) and the same 16 of up (tile 1).
constexpr int64_t kPanelColumns = 32, kTileColumns = 16, kStepWords = 16;
/// Bytes of one step of a panel: what one pair of tile loads, or 32 vector loads, reads.
constexpr int64_t kStepBytes = 2 * kStepWords * kTileColumns * 4;
/// Elements of k in a step: 16 for f32, 32 for bf16, 64 for i8.
constexpr int64_t step_elements(tensor::DType dtype) { return kStepWords * 4 / size_of(dtype); }

/// Panels and steps of a packed weight in the panel layout.
struct PanelShape {
  int64_t panels = 0, steps = 0;
  int64_t columns = 0;  ///< columns of the result in a panel: 32, or 16 if paired
};
PanelShape panel_shape(const PackedWeight& weight);

/// With PackedWeight::int8_rows a row x of the other operand is quantised: to the nearest integers
/// of x * (127 / its largest magnitude), ties to even, with a scale for the row. Products of int8
/// are summed exactly (dynamic quantisation for each token: ZeroQuant, Yao et al. 2022, section
/// 4.1). A row of magnitudes below kInt8Least becomes zeros.
constexpr float kInt8Largest = 127, kInt8Least = 1e-30f;

/// A matrix W[n, k] as it is stored: floats, or i8 with a scale for each row, or nibbles in u8 with
/// scales for groups (kernels/nibbles.h).
struct StoredMatrix {
  tensor::Tensor values{};
  tensor::Tensor scales{};  ///< of i8: f32 [n]; of nibbles: bf16 [n, groups]

  StoredMatrix() = default;
  StoredMatrix(tensor::Tensor floats) : values(std::move(floats)) {}
  StoredMatrix(tensor::Tensor whole_numbers, tensor::Tensor row_scales)
      : values(std::move(whole_numbers)), scales(std::move(row_scales)) {}
};

/// Packs `w` [n, k] (any float dtype), or the pair of `w` and `up` if `up` is defined, for products
/// in `dtype` (f32, bf16, or i8 for experts). i8 is symmetric, by column of the result: the largest
/// magnitude of W's row becomes 127, and each element is off by half a scale at most; k is at most
/// 65,536, so that sums of whole numbers fit. What is stored in i8, or in nibbles, is packed for
/// products in i8 as it is. On meta only the shape is kept. Counted as weights.
PackedWeight pack_weight(const StoredMatrix& w, const StoredMatrix& up, tensor::DType dtype,
                         Isa isa);

/// The whole numbers and scales that pack_weight(w, {}, i8) packs, as they are stored. A row that
/// holds what is no number has a scale that is none.
StoredMatrix quantise_rows(const tensor::Tensor& w);

/// Weights of i8 in the panel layout, as a file may hold them: no kernel needs them in another
/// order, but the reference's. Of a pair gate and up lie in one panel.
struct StoredPanels {
  int64_t n = 0, k = 0;  ///< of W, or of each of the two
  bool paired = false;
  tensor::Tensor values{};                 ///< i8 [panels, steps, kStepBytes]
  std::array<tensor::Tensor, 2> scales{};  ///< f32 [n], as rows have them; the second: up's
};
/// Whether panels of such a matrix, or pair, have no tails: they are as large as its rows.
bool fills_panels(int64_t n, int64_t k, bool paired);
/// Of rows as quantise_rows() gives them; `up` is empty where there is no pair.
StoredPanels panels_of(const StoredMatrix& w, const StoredMatrix& up);
/// The rows again; the second is empty where there is no pair.
std::array<StoredMatrix, 2> rows_of(const StoredPanels& panels);
/// What pack_weight() makes of their rows, for `avx2` and above over the same values. Only scales
/// are copied, and counted as weights.
PackedWeight pack_panels(const StoredPanels& panels, Isa isa);

/// The nearest whole number of one below 2^22; of two the even one.
inline float nearest_whole(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace tessera::kernels
