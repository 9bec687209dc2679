#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// finite[0] = whether every element of a float array is a number: no NaN, no infinity.
struct FiniteArgs {
  const void* x = nullptr;
  tensor::DType dtype = tensor::DType::f32;  ///< f32, bf16 or f16
  int64_t count = 0;
  int32_t* finite = nullptr;
};

namespace reference {
/// Exponents that are all ones, without a branch in the loop.
void all_finite(const FiniteArgs& args);
}  // namespace reference
namespace cuda {
/// Eight elements a thread where they can be read so.
void all_finite(const FiniteArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
