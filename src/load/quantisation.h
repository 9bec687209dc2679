#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "load/tensor_set.h"

namespace tessera::load {

/// The tensor that holds the scales of a matrix in i8, f32 [rows]: it stands for a row times its
/// scale.
std::string scales_of(const std::string& matrix);
/// Whether the files hold a tensor as whole numbers with scales beside it.
bool is_quantised(const TensorSet& tensors, const std::string& name);
/// In what a matrix is packed that a model asks for in `compute`: what a folder has in int8, and
/// says so, stays in it.
tensor::DType packed_as(const TensorSet& tensors, const std::string& name, tensor::DType compute);
/// Whether it holds the scales of another one.
bool holds_scales(const TensorSet& tensors, const std::string& name);

/// In what a config.json says that weights are stored, by the "quantization_config" that
/// quantised_config() writes; this is taken out, so that what is left describes the model as it
/// was. Those of others stay, for open_weights() to refuse. Throws Error(model) naming `file`.
Quantised take_quantisation(base::Json& config, const std::string& file);
/// The text of a config.json with that key, all others as and where they are.
std::string quantised_config(const std::string& path, bool dense);

}  // namespace tessera::load
