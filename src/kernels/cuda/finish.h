#pragma once

#include <cstdint>

#include "kernels/matmul.h"
#include "tensor/dtype.h"

namespace tessera::kernels::cuda {

using tensor::DType;

/// What follows the sums of a product, where the library cannot do it: f32 [rows, n], paired
/// [rows, 2n].
struct Finish {
  const float* sums;  ///< null where a kernel has them in registers
  int64_t sums_stride, rows, n;
  Epilogue epilogue;
  void* y;
  DType y_dtype;
  int64_t y_stride;
  void* rest = nullptr;  ///< if there: bf16 as y, what rounding to it left; with swiglu alone
};

}  // namespace tessera::kernels::cuda
