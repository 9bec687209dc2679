#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace tessera::ops {

/// Whether every element of a float tensor is a number: no NaN, no infinity. True on meta. It
/// waits for a GPU.
bool all_finite(const tensor::Tensor& x);

/// Throws Error(model) if not all of `x`, which `part` of a model made ("block 3"), is finite.
void require_finite(const tensor::Tensor& x, std::string_view part);
/// The same where it is known that not all is.
[[noreturn]] void fail_not_finite(std::string_view part);

}  // namespace tessera::ops
