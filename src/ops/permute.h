#pragma once

#include <span>

#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::Tensor;

/// Permutes a dense x, read as an array of up to eight axes `sizes`, to the axes in `order`
/// (outermost first); returns a dense tensor of `shape`. Any dtype. Throws Error(usage) for
/// mismatched sizes, order or shape.
Tensor permute(const Tensor& x, std::span<const int64_t> sizes, std::span<const int> order,
               const tensor::Shape& shape);

}  // namespace tessera::ops
