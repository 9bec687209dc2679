#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels::cuda {

/// Epilogues of the library.
enum class LibraryEpilogue : uint8_t { none, bias, gelu_tanh, gelu_tanh_bias };

/// y[rows, n] = epilogue(x[rows, k] w[n, k]^T + beta * y), by cuBLASLt, sums in f32. Outside the
/// row rule: the library may sum in another order for another number of rows.
struct LibraryProduct {
  const void *x = nullptr, *w = nullptr;
  tensor::DType dtype = tensor::DType::f32;  ///< dtype of x and w: f32 or bf16
  int64_t rows = 0, n = 0, k = 0;
  int64_t x_stride = 0, y_stride = 0;
  void* y = nullptr;
  tensor::DType y_dtype = tensor::DType::f32;  ///< f32, or `dtype`
  LibraryEpilogue epilogue = LibraryEpilogue::none;
  const float* bias = nullptr;  ///< [n]
  float beta = 0;
};

/// Queues the product. Throws Error(usage) if the library is missing or fails.
void library_product(const LibraryProduct& product);

}  // namespace tessera::kernels::cuda
