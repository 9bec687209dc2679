#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace tessera::ops {

/// True if every element of a float tensor is finite: no NaN, no infinity. True on meta. Waits for
/// a GPU.
bool all_finite(const tensor::Tensor& x);

/// Throws Error(model) if an element of `x`, computed by `part` of a model ("block 3"), is not
/// finite.
void require_finite(const tensor::Tensor& x, std::string_view part);
/// Same for a tensor known not to be finite.
[[noreturn]] void fail_not_finite(std::string_view part);

}  // namespace tessera::ops
