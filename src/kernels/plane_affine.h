#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// An image of some frames: [frames, height, width, channels], dense.
struct PlaneSize {
  int64_t frames = 0, height = 0, width = 0;
};

/// Frame of `from` that is nearest to frame t of `frames`: where there is an odd number above one,
/// the first reads the first, the others read the others.
constexpr int64_t nearest_frame(int64_t t, int64_t frames, int64_t from) {
  if (frames > 1 && frames % 2 == 1 && from > 1)
    return t == 0 ? 0 : 1 + (t - 1) * (from - 1) / (frames - 1);
  return t * from / frames;
}

/// y = silu((x * scale + shift) * gain + bias), in f32; gain and bias are read at the nearest place
/// of their own size.
struct PlaneAffineArgs {
  const void* x = nullptr;
  tensor::DType dtype = tensor::DType::f32;  ///< of x and y
  PlaneSize size, field;
  int64_t channels = 0;
  const float* scale_shift = nullptr;            ///< [2, channels]
  const float *gain = nullptr, *bias = nullptr;  ///< of size `field`
  void* y = nullptr;
};

namespace reference {
/// Plain loops: defines correct.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace reference
namespace avx2 {
/// In vectors, with expf as glibc computes it, or near enough for the same bf16: where that is the
/// C library, bit by bit the same.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace avx2
namespace avx512 {
/// The same in wider vectors.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace avx512
namespace cuda {
/// An element a thread.
void plane_affine(const PlaneAffineArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
