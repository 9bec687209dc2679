#pragma once

#include "kernels/cuda/library_product.h"
#include "kernels/matmul.h"

namespace tessera::kernels::cuda {

/// Split of a product with its epilogue between the library and a kernel that finishes f32 sums.
struct MatmulPlan {
  bool converts = false;   ///< x is first converted to the dtype of the weights
  bool complete = false;   ///< the library writes y itself
  bool adds_to_y = false;  ///< the residual is y, added by the library
  LibraryEpilogue inside = LibraryEpilogue::none;
};

/// The library adds f32 biases and computes tanh GELU only for f32 output; bf16 output requires
/// bf16 input and row sizes that are multiples of eight.
inline MatmulPlan matmul_plan(const MatmulArgs& args) {
  using tensor::DType;
  const PackedWeight& w = *args.weight;
  const Epilogue& e = args.epilogue;
  MatmulPlan plan;
  plan.converts = args.x_dtype != w.dtype;
  const bool f32 = args.y_dtype == DType::f32;
  const bool gelu = e.activation == Activation::gelu_tanh;
  if (w.paired || args.low || e.gate || (!gelu && e.activation != Activation::none)) return plan;
  if (!f32 && (args.y_dtype != w.dtype || e.bias || gelu)) return plan;
  if (e.residual) {
    const bool itself = e.residual == args.y && e.residual_dtype == args.y_dtype &&
                        e.residual_stride == args.y_stride;
    if (!itself || gelu) return plan;
    plan.adds_to_y = true;
  }
  plan.complete = true;
  plan.inside = gelu ? (e.bias ? LibraryEpilogue::gelu_tanh_bias : LibraryEpilogue::gelu_tanh)
                     : (e.bias ? LibraryEpilogue::bias : LibraryEpilogue::none);
  return plan;
}

}  // namespace tessera::kernels::cuda
