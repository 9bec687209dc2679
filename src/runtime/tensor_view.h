#pragma once

#include <string>

#include "tensor/tensor.h"
#include "tessera/tensor.h"

namespace tessera::runtime {

/// Copies the caller's numbers. Throws Error(usage) naming the tensor for an invalid view.
tensor::Tensor tensor_of(const std::string& name, const TensorView& view);
/// Converts a tensor to the caller's type.
TensorData data_of(const tensor::Tensor& x);

}  // namespace tessera::runtime
