#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// Size of frames: [frames, height, width, channels], dense.
struct PlaneSize {
  int64_t frames = 0, height = 0, width = 0;
};

/// Nearest frame of `from` for frame t of `frames`: for an odd number above one, the first reads
/// the first, the others read the others.
constexpr int64_t nearest_frame(int64_t t, int64_t frames, int64_t from) {
  if (frames > 1 && frames % 2 == 1 && from > 1)
    return t == 0 ? 0 : 1 + (t - 1) * (from - 1) / (frames - 1);
  return t * from / frames;
}

/// y = silu((x * scale + shift) * gain + bias), in f32; gain and bias are read at the nearest
/// position of their own size.
struct PlaneAffineArgs {
  const void* x = nullptr;
  tensor::DType dtype = tensor::DType::f32;  ///< dtype of x and y
  PlaneSize size, field;
  int64_t channels = 0;
  const float* scale_shift = nullptr;            ///< [2, channels]
  const float *gain = nullptr, *bias = nullptr;  ///< with size `field`
  void* y = nullptr;
};

namespace reference {
/// Plain loops: the definition of correct results.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace reference
namespace avx2 {
/// In vectors, with glibc's expf, or accurate enough for the same bf16: bit-identical if glibc is
/// the C library.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace avx2
namespace avx512 {
/// Same in wider vectors.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace avx512
namespace cuda {
/// Each thread computes an element.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
