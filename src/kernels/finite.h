#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// finite[0] = 1 if every element of a float array is finite: no NaN, no infinity.
struct FiniteArgs {
  const void* x = nullptr;
  tensor::DType dtype = tensor::DType::f32;  ///< f32, bf16 or f16
  int64_t count = 0;
  int32_t* finite = nullptr;
};

namespace reference {
/// Tests for exponents with all bits set, without a branch in the loop.
void all_finite(const FiniteArgs& args);
}  // namespace reference
namespace cuda {
/// Eight elements for each thread if alignment allows.
void all_finite(const FiniteArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
