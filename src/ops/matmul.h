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

/// A weight matrix W[n, k] packed for the kernels. Cheap to copy (shared).
using kernels::LowRank;
using kernels::PackedWeight;
using Weight = std::shared_ptr<const PackedWeight>;
/// Stored weights: floats, i8 with scales, or int4 with group scales, which only CPUs support.
using kernels::groups_of;
using kernels::holds_nibbles;
using kernels::kGroupElements;
using kernels::StoredMatrix;

/// Format of a packed weight.
struct WeightForm {
  DType dtype = DType::f32;  ///< f32, bf16 or i8
  bool int4 = false;         ///< for i8: floats become int4 with group scales
  bool int8_rows = false;    ///< for i8: x is quantised to int8 (kernels/packed_weight.h)

  WeightForm() = default;
  WeightForm(DType of) : dtype(of) {}
  /// Int8 or int4 for products with int8 activations.
  static WeightForm of_rows(bool int4);
  bool operator==(const WeightForm&) const = default;
};
/// Name of a form: "bf16", "i8", ..., with "x i8" for int8 rows.
std::string name_of(const WeightForm& form);

/// Packs `w` [n, k] (any float dtype) for products in `form` with the active instruction set. i8
/// has a scale for each column; activations are not quantised unless the form says so; stored i8 or
/// int4 is kept. On meta only the shape is kept; bytes are counted as weights. The result is on the
/// device of `w`, or on `device`: for a GPU always row major, and with activations in bf16 where
/// the form asks for int8 rows. Throws Error(usage) for int4 on a GPU.
Weight pack_weight(const StoredMatrix& w, const WeightForm& form);
Weight pack_weight(const StoredMatrix& w, const WeightForm& form, Device device);
/// Packs the transpose of a table [k, n]: products with it are weighted sums of the table's rows.
Weight pack_transposed_weight(const Tensor& table, DType dtype);
/// Packs gate [n, k] and up [n, k] together for gated activations: matmul with swiglu or geglu
/// returns n columns.
Weight pack_paired_weight(const StoredMatrix& gate, const StoredMatrix& up, const WeightForm& form);
Weight pack_paired_weight(const StoredMatrix& gate, const StoredMatrix& up, const WeightForm& form,
                          Device device);
/// Stored panels, sharing the values of a file on a CPU.
using kernels::fills_panels;
using kernels::kPanelColumns;
using kernels::kStepBytes;
using kernels::kTileColumns;
constexpr int64_t kStepElements = kernels::step_elements(DType::i8);
using kernels::panels_of;
using kernels::rows_of;
using kernels::StoredPanels;
Weight pack_panels(const StoredPanels& panels, Device device, bool int8_rows = false);
/// Quantises a float matrix [n, k] to stored i8: integers and a scale for each row.
using kernels::quantise_rows;
/// Quantises to int4 with a scale for each group of a row (kernels/nibbles.h), and the errors of
/// both.
using kernels::quantise_groups;
using kernels::relative_error;
/// Quantises floats [n, k] to int8 or int4, not counted as memory. Quantised matrices are returned
/// unchanged; on meta only shapes are made.
StoredMatrix quantised(const StoredMatrix& w, bool int4);

using kernels::Activation;
using kernels::is_paired;

class MatmulGroup;

/// Operations on the sums before the store, in this order: + bias [n] (f32; not with paired
/// weights), activation, * gate[row_of[t], :] (f32 [rows, n]), + residual [tokens, n].
struct MatmulOptions {
  Tensor bias{};
  Activation activation = Activation::none;
  Tensor gate{};
  RowMap row_of{};  ///< for gate
  Tensor residual{};
  DType out = DType::f32;        ///< f32, bf16 or f16
  bool out_as_input = true;      ///< the result takes the dtype of x; `out` is ignored
  Tensor into{};                 ///< destination, may be a view; undefined: new memory
  MatmulGroup* group = nullptr;  ///< the result is valid only after the group has run
};

/// x [tokens, k] W^T -> [tokens, n]. bf16 weights: x is rounded to bf16, sums in f32. f32 weights:
/// x is widened. i8 weights: x is widened, or quantised as for experts (kernels/experts.h); on a
/// GPU it is rounded to bf16. PackedWeight::low is added to the sums. A row of the result depends
/// only on the same row of x (bitwise, own kernels). Tokens may be 0. Throws Error(usage) for
/// mismatched sizes.
Tensor matmul(const Tensor& x, const Weight& w, const MatmulOptions& options = {});

/// Independent products on a device, which a GPU computes together, because each alone would leave
/// some multiprocessors idle. On a CPU each product is computed immediately.
class MatmulGroup {
 public:
  /// Computes all products added since the last run.
  void run();

 private:
  friend Tensor matmul(const Tensor&, const Weight&, const MatmulOptions&);
  struct Product {
    Tensor x;
    Weight w;
    MatmulOptions options;
    Tensor low;  // x down^T of a low-rank weight
    Tensor y;
  };
  std::vector<Product> products_;
};

}  // namespace tessera::ops
