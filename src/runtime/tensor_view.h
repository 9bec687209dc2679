#pragma once

#include <string>

#include "tensor/tensor.h"
#include "tessera/tensor.h"

namespace tessera::runtime {

/// A copy of the caller's numbers. Throws Error(usage) naming the tensor for a view that is none.
tensor::Tensor tensor_of(const std::string& name, const TensorView& view);
/// A tensor as the caller gets it.
TensorData data_of(const tensor::Tensor& x);

}  // namespace tessera::runtime
