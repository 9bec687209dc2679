#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// y = x with channel pairs of each head rotated: (a, b) -> (a cos - b sin, b cos + a sin). Pair i
/// of a head is (i, i + pairs), or (2i, 2i + 1) if interleaved; channels after 2 * pairs are
/// copied. Strides in elements.
struct RopeArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< dtype of x and y
  int64_t tokens = 0, heads = 0, head_dim = 0, pairs = 0;
  const float *cos = nullptr, *sin = nullptr;  ///< [tokens, pairs], dense
  bool interleaved = false;
};

namespace reference {
/// Plain loops in f32: the definition of correct results.
void rope(const RopeArgs& args);
}  // namespace reference
namespace avx2 {
/// In vectors, bit-identical.
void rope(const RopeArgs& args);
}  // namespace avx2
namespace avx512 {
/// Same in wider vectors.
void rope(const RopeArgs& args);
}  // namespace avx512
namespace cuda {
/// Each thread rotates a pair of channels.
void rope(const RopeArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
