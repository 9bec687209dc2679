#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "load/tensor_set.h"
#include "nn/split.h"
#include "nn/weights.h"
#include "ops/matmul.h"

namespace tessera::load {

/// The tensor with the scales of an integer matrix. int8: f32 [n], a scale for each row. int4: bf16
/// [n, groups], a scale for each group of a row (kernels/nibbles.h), in panels only of folders that
/// hold them a second time.
std::string scales_of(const std::string& matrix);
/// True if the files hold a tensor as integers with scales: I8 with F32, U8 [n, k / 2] of nibbles
/// with BF16, or panels of nibbles.
bool is_quantised(const TensorSet& tensors, const std::string& name);
/// True if the tensor is int4.
bool is_int4(const TensorSet& tensors, const std::string& name);
/// Byte order of a quantised matrix [n, k] in the files: rows; panels (kernels/packed_weight.h), I8
/// [panels, steps, 2048]; or a half of the panels of a pair, I8 [panels, steps, 1024], with the
/// other half in the partner (gate or up).
enum class WeightOrder : uint8_t { rows, panels, half };
WeightOrder order_of(const TensorSet& tensors, const std::string& name);
/// Required shapes of a quantised matrix [n, k] in the files.
struct StoredShapes {
  tensor::Shape values, scales;
  tensor::DType values_dtype, scales_dtype;
  bool within = false;  ///< the scales lie in the values alone
};
/// Throws Error(model) for int4 with an odd k.
StoredShapes stored_shapes(const TensorSet& tensors, const std::string& name, int64_t n, int64_t k);
/// The part of a stored matrix [n, k] for a cut. Throws Error(plan) for a cut inside a group of
/// nibbles.
ops::StoredMatrix taken(const ops::StoredMatrix& whole, const nn::Cut& cut,
                        const std::string& name);
/// The packed form of a matrix [., k] requested in `compute`: quantised weights of a folder keep
/// their form; floats follow TensorSet::rules().
ops::WeightForm packed_as(const TensorSet& tensors, const std::string& name, tensor::DType compute,
                          int64_t k);
/// Same for a pair. Throws Error(usage) if the rules give two forms.
ops::WeightForm pair_packed_as(const TensorSet& tensors, const std::string& gate,
                               const std::string& up, tensor::DType compute, int64_t k);
/// Filters of fewer input channels stay in bf16: rounding their pixels takes longer than it saves.
constexpr int64_t kFewestInt8Channels = 64;
/// True for a filter [out, in, ...] that the rule `vae` has in int8: of a VAE's residual block.
bool is_int8_filter(std::string_view name, const tensor::Shape& shape,
                    int64_t fewest_channels = kFewestInt8Channels);
/// The same weights, with such filters in i8 where bf16 is asked for.
std::shared_ptr<const nn::Weights> with_int8_filters(std::shared_ptr<const nn::Weights> weights,
                                                     int64_t fewest_channels = kFewestInt8Channels);
/// Elements of a tensor, whole numbers counted one by one.
int64_t elements_of(const TensorSet& tensors, const std::string& name);
/// Whether it holds the scales of another one, or of its inputs.
bool holds_scales(const TensorSet& tensors, const std::string& name);

}  // namespace tessera::load
