#pragma once

#include <cstdint>

#include "kernels/matmul.h"
#include "tensor/dtype.h"

namespace tessera::kernels::cuda {

using tensor::DType;

/// Epilogue of a product, if cuBLASLt has no such epilogue: f32 [rows, n], paired [rows, 2n].
struct Finish {
  const float* sums;  ///< null if a kernel has them in registers
  int64_t sums_stride, rows, n;
  Epilogue epilogue;
  void* y;
  DType y_dtype;
  int64_t y_stride;
  void* rest = nullptr;  ///< optional, swiglu only: bf16 in y's layout, error of rounding to bf16
};

}  // namespace tessera::kernels::cuda
