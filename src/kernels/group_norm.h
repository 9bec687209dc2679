#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// Pixels of a run.
constexpr int64_t kMomentRun = 64;

/// Mean and biased variance of each channel over the pixels of a row: the part of a group norm that
/// reads the image. Sums are f32 over runs of kMomentRun pixels, then f64 in order, so that the
/// number of threads does not matter.
struct ChannelMomentsArgs {
  const void* x = nullptr;  ///< [rows, pixels, channels]; a row is dense
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;  ///< elements from row to row
  int64_t rows = 0, pixels = 0, channels = 0;
  float* moments = nullptr;  ///< [rows, 2, channels]: means, variances
  constexpr int64_t runs() const { return (pixels + kMomentRun - 1) / kMomentRun; }
};
/// Merges sums [rows, runs, 2, channels], of values and of squares relative to the first pixel of
/// the row, into args.moments.
void merge_moment_runs(const ChannelMomentsArgs& args, const float* sums);

/// Scale and shift that normalise groups of channels and apply weight and bias; arithmetic in f64.
struct GroupScaleShiftArgs {
  const float* moments = nullptr;  ///< [rows, 2, channels], see ChannelMomentsArgs
  int64_t rows = 0, channels = 0, groups = 1;
  const float *weight = nullptr, *bias = nullptr;  ///< [channels] or null
  float eps = 0;
  float* scale_shift = nullptr;  ///< [rows, 2, channels]
};

/// y = act(x * scale + shift) by row and channel, act SiLU or none, in f32.
struct ChannelAffineArgs {
  const void* x = nullptr;  ///< [rows, pixels, channels]; a row is dense
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;
  int64_t rows = 0, pixels = 0, channels = 0;
  const float* scale_shift = nullptr;  ///< [rows, 2, channels]
  bool silu = false;
  void* y = nullptr;  ///< [rows, pixels, channels] of `dtype`, dense
};

namespace reference {
/// Plain loops with two passes in f64: the definition of correct results.
void channel_moments(const ChannelMomentsArgs& args);
void channel_affine(const ChannelAffineArgs& args);
void group_scale_shift(const GroupScaleShiftArgs& args);
}  // namespace reference
namespace avx2 {
/// Processes sixteen channels at a time.
void channel_moments(const ChannelMomentsArgs& args);
void channel_affine(const ChannelAffineArgs& args);
}  // namespace avx2
namespace avx512 {
/// Same in wider vectors.
void channel_moments(const ChannelMomentsArgs& args);
void channel_affine(const ChannelAffineArgs& args);
}  // namespace avx512
namespace cuda {
/// Runs in f32, merged in f64 in a fixed order.
void channel_moments(const ChannelMomentsArgs& args);
void channel_affine(const ChannelAffineArgs& args);
void group_scale_shift(const GroupScaleShiftArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
