#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// y[t, g, :] = normalise(x[t, g, :]) * weight + bias, then * (1 + scale[row_of[t], :]) +
/// shift[...], with separate runs of `width` channels. Strides in elements.
struct NormArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< dtype of x and y: f32 or bf16
  int64_t tokens = 0, groups = 1, width = 0;
  bool centred = true;  ///< layer norm; false: RMS norm
  float eps = 1e-6f;
  const float *weight = nullptr, *bias = nullptr;  ///< [width]
  const float *shift = nullptr, *scale = nullptr;  ///< [rows, groups * width]
  int64_t shift_stride = 0, scale_stride = 0;
  const int32_t* row_of = nullptr;  ///< null: row 0
  /// [tokens, width / 2]: if given, the result is rounded and neighbouring channels are rotated by
  /// the token's angles. GPU only, for rows and runs of whole 16-byte words.
  const float *cos = nullptr, *sin = nullptr;
};

namespace reference {
/// Plain loops with f64 sums: the definition of correct results.
void norm(const NormArgs& args);
}  // namespace reference
namespace avx2 {
/// Passes for mean, deviation and result, sixteen channels at a time; sums in f32.
void norm(const NormArgs& args);
}  // namespace avx2
namespace avx512 {
/// Same in wider vectors.
void norm(const NormArgs& args);
}  // namespace avx512
namespace cuda {
/// A row in the registers of some lanes of a warp, or of a block; sums in f32 in a fixed order.
void norm(const NormArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
