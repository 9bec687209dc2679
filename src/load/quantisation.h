#pragma once

#include <optional>
#include <string>

#include "load/tensor_set.h"
#include "nn/split.h"
#include "ops/matmul.h"

namespace tessera::load {

/// The tensor that holds the scales of a matrix of whole numbers: of int8 f32 [n], it stands for a
/// row times its scale; of int4 bf16 [n, groups], a row is groups (kernels/nibbles.h).
std::string scales_of(const std::string& matrix);
/// Whether the files hold a tensor as whole numbers with scales beside it: I8 with F32, or U8 [n, k
/// / 2] of nibbles with BF16.
bool is_quantised(const TensorSet& tensors, const std::string& name);
/// Whether that is nibbles.
bool is_int4(const TensorSet& tensors, const std::string& name);
/// In which order the files hold the bytes of a quantised matrix [n, k]: row after row; as panels
/// (kernels/packed_weight.h), I8 [panels, steps, 2048] or U8 [panels, steps, 1152]; or as a half of
/// the panels of a pair, half as wide, of which the other half is up's, or gate's.
enum class Order : uint8_t { rows, panels, half };
Order order_of(const TensorSet& tensors, const std::string& name);
/// What the files must hold of a quantised matrix [n, k].
struct StoredShapes {
  tensor::Shape values, scales;
  tensor::DType values_dtype, scales_dtype;
};
/// Throws Error(model) for nibbles of an odd k.
StoredShapes stored_shapes(const TensorSet& tensors, const std::string& name, int64_t n, int64_t k);
/// What a cut of [n, k] takes of a stored matrix. Throws Error(plan) for one that goes through a
/// group of nibbles.
ops::StoredMatrix taken(const ops::StoredMatrix& whole, const nn::Cut& cut,
                        const std::string& name);
/// The form in which a matrix [., k] is packed that a model asks for in `compute`: quantised
/// weights of a folder stay as they are; floats follow TensorSet::rules().
ops::WeightForm packed_as(const TensorSet& tensors, const std::string& name, tensor::DType compute,
                          int64_t k);
/// The same for a pair. Throws Error(usage) if the rules give two forms.
ops::WeightForm pair_packed_as(const TensorSet& tensors, const std::string& gate,
                               const std::string& up, tensor::DType compute, int64_t k);
/// Elements of a tensor, whole numbers counted one by one.
int64_t elements_of(const TensorSet& tensors, const std::string& name);
/// Whether it holds the scales of another one.
bool holds_scales(const TensorSet& tensors, const std::string& name);

}  // namespace tessera::load
