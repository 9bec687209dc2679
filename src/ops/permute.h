#pragma once

#include <span>

#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::Tensor;

/// The elements of a dense x, read as an array of up to eight axes `sizes`, with its axes in
/// `order` (outermost first), dense, as a tensor of `shape`. Any dtype. Throws Error(usage) for
/// sizes, an order or a shape that do not fit.
Tensor permute(const Tensor& x, std::span<const int64_t> sizes, std::span<const int> order,
               const tensor::Shape& shape);

}  // namespace tessera::ops
