#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/nibbles.h"
#include "ops/upload.h"
#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

/// A weight matrix W[n, k] in the order in which the kernels read it. Cheap to copy (shared).
using kernels::LowRank;
using kernels::PackedWeight;
using Weight = std::shared_ptr<const PackedWeight>;
/// As it is stored: floats, or i8 with scales, or nibbles with scales of groups, which are for
/// CPUs.
using kernels::groups_of;
using kernels::holds_nibbles;
using kernels::kGroupElements;
using kernels::StoredMatrix;

/// The form of a packed weight.
struct WeightForm {
  DType dtype = DType::f32;  ///< f32, bf16 or i8
  bool int4 = false;         ///< of i8: floats become nibbles with scales of groups
  bool int8_rows = false;    ///< of i8: x is quantised to int8 (kernels/packed_weight.h)

  WeightForm() = default;
  WeightForm(DType of) : dtype(of) {}
  /// Int8 or int4 for products with int8 activations.
  static WeightForm of_rows(bool int4);
  bool operator==(const WeightForm&) const = default;
};
/// "bf16", "i8", ..., with "x i8" where rows are int8.
std::string name_of(const WeightForm& form);

/// Packs `w` [n, k] (any float dtype) for products in `form` (i8: with a scale a column,
/// activations stay as they are unless the form says more; what is i8 or nibbles already stays as
/// it is) with the active instruction set. On meta only the shape is kept; bytes are counted as
/// weights. It lies where `w` is, or on `device`: for a GPU row major, whatever the instruction
/// set. Throws Error(usage) for rows of int8 on a GPU.
Weight pack_weight(const StoredMatrix& w, const WeightForm& form);
Weight pack_weight(const StoredMatrix& w, const WeightForm& form, Device device);
/// Packs the transpose of a table [k, n]: products with it are weighted sums of the table's rows.
Weight pack_transposed_weight(const Tensor& table, DType dtype);
/// Packs gate [n, k] and up [n, k] together for gated activations: matmul with swiglu or geglu
/// gives n columns.
Weight pack_paired_weight(const StoredMatrix& gate, const StoredMatrix& up, const WeightForm& form);
Weight pack_paired_weight(const StoredMatrix& gate, const StoredMatrix& up, const WeightForm& form,
                          Device device);
/// What a file holds in the order of the kernels, over the same values where these lie on a CPU.
using kernels::fills_panels;
using kernels::kPanelColumns;
using kernels::kStepBytes;
using kernels::kTileColumns;
constexpr int64_t kStepElements = kernels::step_elements(DType::i8);
using kernels::panels_of;
using kernels::rows_of;
using kernels::StoredPanels;
Weight pack_panels(const StoredPanels& panels, Device device, bool int8_rows = false);
/// What i8 makes of a float matrix [n, k], as it is stored: whole numbers and a scale for each row.
using kernels::quantise_rows;
/// The same in nibbles, with a scale for each group of a row (kernels/nibbles.h), and what either
/// is off.
using kernels::quantise_groups;
using kernels::relative_error;
/// Floats [n, k] in int8 or int4 by one of these, not counted as memory. Quantised matrices stay as
/// they are; on meta only shapes are made.
StoredMatrix quantised(const StoredMatrix& w, bool int4);

using kernels::Activation;
using kernels::is_paired;

class MatmulGroup;

/// What happens to the sums before they are stored, in this order:
/// + bias [n] (f32; not with paired weights), activation, * gate[row_of[t], :] (f32 [rows, n]), +
/// residual [tokens, n].
struct MatmulOptions {
  Tensor bias{};
  Activation activation = Activation::none;
  Tensor gate{};
  RowMap row_of{};  ///< for gate
  Tensor residual{};
  DType out = DType::f32;        ///< f32, bf16 or f16
  bool out_as_input = true;      ///< the result takes the dtype of x; `out` is ignored
  Tensor into{};                 ///< where the result is written, a view too; undefined: new memory
  MatmulGroup* group = nullptr;  ///< the result may be there only once this has run
};

/// x [tokens, k] W^T -> [tokens, n]. Weights bf16: x is rounded to bf16, sums in f32. Weights f32:
/// x is widened. Weights i8, not on a GPU: x is widened, or as experts have it (kernels/experts.h).
/// PackedWeight::low is added to the sums. A row of the result depends on its row of x only
/// (bitwise, own kernels). Tokens may be 0. Throws Error(usage) on sizes that do not fit.
Tensor matmul(const Tensor& x, const Weight& w, const MatmulOptions& options = {});

/// Products of one device that read no result of each other, which a GPU computes together: each
/// alone would leave some of its multiprocessors idle. On a CPU they are computed at once.
class MatmulGroup {
 public:
  /// Computes what was added since the last time.
  void run();

 private:
  friend Tensor matmul(const Tensor&, const Weight&, const MatmulOptions&);
  struct Product {
    Tensor x;
    Weight w;
    MatmulOptions options;
    Tensor low;  // of what the weight adds
    Tensor y;
  };
  std::vector<Product> products_;
};

}  // namespace tessera::ops
