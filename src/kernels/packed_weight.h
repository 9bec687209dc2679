#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/isa.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

struct LowRank;

/// A weight matrix W[n, k] packed for an instruction set. `reference`: row major [n, k] (paired:
/// [2n, k], gate rows first). `avx2`, `avx512` and `amx` share the layout of kPanelColumns.
struct PackedWeight {
  int64_t n = 0;  ///< columns of the result (paired: of gate or up)
  int64_t k = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< f32, bf16 or i8
  Isa isa = Isa::reference;
  bool paired = false;      ///< gate and up interleaved, for SwiGLU
  tensor::Tensor data;      ///< meta: shape only
  tensor::Tensor scales{};  ///< i8 only: f32, a scale for each column, in the order of `data`
  bool int4 = false;        ///< i8 only: int4 with group scales, see kernels/nibbles.h
  bool int8_rows = false;   ///< i8 only: for int8 activations, see kInt8Largest
  std::shared_ptr<const LowRank> low{};  ///< added to products; null: none

  int64_t bytes() const { return data.bytes() + (scales.defined() ? scales.bytes() : 0); }
};

/// A rank-r update of a matrix W[n, k], kept separately (LoRA, Hu et al. 2021, section 4.1):
/// products are x W^T + (x down^T) up^T, summed in f32 before the epilogue.
struct LowRank {
  PackedWeight down;  ///< [r, k]
  PackedWeight up;    ///< f32 [n, r], paired like W; packed for the instruction set of W
};

/// Panel layout: [panel of 32 columns][step][tile of 16 columns][16 words of k][16 columns]. A word
/// is 32 bits: one f32, two bf16 or four i8 along k. Tails are zeros. A paired panel holds 16 gate
/// columns (tile 0) and the matching 16 up columns (tile 1).
constexpr int64_t kPanelColumns = 32, kTileColumns = 16, kStepWords = 16;
/// Bytes of a step of a panel: read by a pair of tile loads or 32 vector loads.
constexpr int64_t kStepBytes = 2 * kStepWords * kTileColumns * 4;
/// Elements of k in a step: 16 for f32, 32 for bf16, 64 for i8.
constexpr int64_t step_elements(tensor::DType dtype) { return kStepWords * 4 / size_of(dtype); }

/// Numbers of panels and steps of a packed weight.
struct PanelShape {
  int64_t panels = 0, steps = 0;
  int64_t columns = 0;  ///< columns of the result in a panel: 32, or 16 if paired
};
PanelShape panel_shape(const PackedWeight& weight);

/// With PackedWeight::int8_rows, a row x of the other operand is quantised to the nearest integers
/// of x * (127 / largest magnitude), ties to even, with a scale for the row. Products of int8 are
/// summed exactly (dynamic quantisation for each token: ZeroQuant, Yao et al. 2022, section 4.1). A
/// row of magnitudes below kInt8Least becomes zeros.
constexpr float kInt8Largest = 127, kInt8Least = 1e-30f;

/// A stored matrix W[n, k]: floats, or i8 with a scale for each row, or int4 in u8 with group
/// scales (kernels/nibbles.h).
struct StoredMatrix {
  tensor::Tensor values{};
  tensor::Tensor scales{};  ///< i8: f32 [n]; int4: bf16 [n, groups]

  StoredMatrix() = default;
  StoredMatrix(tensor::Tensor floats) : values(std::move(floats)) {}
  StoredMatrix(tensor::Tensor whole_numbers, tensor::Tensor row_scales)
      : values(std::move(whole_numbers)), scales(std::move(row_scales)) {}
};

/// Packs `w` [n, k] (any float dtype), or the pair of `w` and `up` if `up` is defined, for products
/// in `dtype` (f32, bf16, or i8 for experts). i8 is symmetric with a scale for each column of the
/// result: the largest magnitude of W's row becomes 127, and the error of an element is at most
/// half a scale; k is at most 65,536, so that integer sums do not overflow. Stored i8 or int4 is
/// packed unchanged for products in i8. On meta only the shape is kept. Counted as weights.
PackedWeight pack_weight(const StoredMatrix& w, const StoredMatrix& up, tensor::DType dtype,
                         Isa isa);

/// The integers and scales packed by pack_weight(w, {}, i8), in stored form. A row with NaN gets a
/// NaN scale.
StoredMatrix quantise_rows(const tensor::Tensor& w);

/// i8 weights in the panel layout, as files may store them: all kernels except the reference use
/// this order. For a pair, a panel holds gate and up.
struct StoredPanels {
  int64_t n = 0, k = 0;  ///< sizes of W, or of each matrix of a pair
  bool paired = false;
  tensor::Tensor values{};                 ///< i8 [panels, steps, kStepBytes]
  std::array<tensor::Tensor, 2> scales{};  ///< f32 [n], in row order; the second is up's
};
/// True if the panels of such a matrix, or pair, have no padding: same size as the rows.
bool fills_panels(int64_t n, int64_t k, bool paired);
/// Panels from rows of quantise_rows(); `up` is empty without a pair.
StoredPanels panels_of(const StoredMatrix& w, const StoredMatrix& up);
/// The inverse; the second is empty without a pair.
std::array<StoredMatrix, 2> rows_of(const StoredPanels& panels);
/// Same result as pack_weight() of the rows, for `avx2` and above, sharing the values. Only scales
/// are copied, and counted as weights.
PackedWeight pack_panels(const StoredPanels& panels, Isa isa);

/// Nearest integer of a number below 2^22; ties to even.
inline float nearest_whole(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace tessera::kernels
