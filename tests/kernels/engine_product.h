#pragma once

#include "kernels/wide/product.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

/// x times w by a given engine, independent of the table's choice; f32 [rows, w.n].
inline tensor::Tensor product(const wide::Engine& engine, const tensor::Tensor& x,
                              const PackedWeight& w) {
  tensor::Tensor y = tensor::Tensor::empty({x.size(0), w.n}, tensor::DType::f32);
  wide::multiply(engine, {.x = x.raw(),
                          .x_dtype = x.dtype(),
                          .x_stride = x.stride(0),
                          .rows = x.size(0),
                          .weight = &w,
                          .epilogue = {},
                          .y = y.raw(),
                          .y_dtype = tensor::DType::f32,
                          .y_stride = w.n});
  return y;
}

}  // namespace tessera::kernels
