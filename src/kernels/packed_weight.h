#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

/// A weight matrix W[n, k] packed for one instruction set.
/// `reference` and `avx2`: row major [n, k] (paired: [2n, k], gate rows first).
/// `avx512` and `amx` share one layout, defined in the .cpp of the packing.
struct PackedWeight {
  int64_t n = 0;  ///< columns of the result (paired: of one of the two)
  int64_t k = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< f32 or bf16 (later i8)
  Isa isa = Isa::reference;
  bool paired = false;  ///< gate and up side by side, for SwiGLU
  tensor::Tensor data;  ///< meta: shape only
};

}  // namespace tessera::kernels
