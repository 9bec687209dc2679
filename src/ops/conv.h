#pragma once

#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::kernels {
struct PackedConv;
}

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Filter of a 2-D convolution packed for the kernels. Cheap to copy.
using ConvWeight = std::shared_ptr<const kernels::PackedConv>;

/// Packs weight [out, in, kh, kw] and bias [out] (may be undefined) for convolutions in `dtype`:
/// f32, bf16, or on CPUs i8 (kernels/conv.h). The result is on the device of `weight`, or on
/// `device`. Throws Error(usage) for mismatched shapes.
ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype);
ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype, tensor::Device device);

/// The filters of the frames under a video's filter, oldest first. Cheap to copy.
using FrameFilters = std::shared_ptr<const std::vector<ConvWeight>>;
/// Packs weight [out, in, frames, kh, kw] as an image filter for each frame; the first has the
/// bias.
FrameFilters pack_frames(const Tensor& weight, const Tensor& bias, DType dtype,
                         tensor::Device device);

/// Number of input lines read for a pixel of the result.
int64_t filter_lines(const ConvWeight& weight);

/// Operations around a convolution, in this order: x * scale + shift, SiLU, up-sampling, zero
/// padding; filter, bias; + residual.
struct Conv2dOptions {
  int stride = 1;
  int pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;  ///< zeros
  Tensor scale_shift{};        ///< f32 [rows, 2, in], see group_scale_shift
  bool silu = false;           ///< SiLU on the input
  bool upsample = false;       ///< the input is doubled in height and width by repeating pixels
  Tensor residual{};           ///< the shape and dtype of the result
  bool into_residual = false;  ///< overwrite the residual with the result
  DType out = DType::f32;
  bool out_as_input = true;  ///< the result takes the dtype of x; `out` is ignored
};
/// x [rows, height, width, in] (channels last, a row dense) -> [rows, height', width', out]; sums
/// are f32. Rows may be 0. A pixel depends only on the pixels under the filter.
Tensor conv2d(const Tensor& x, const ConvWeight& weight, const Conv2dOptions& options);

/// x [rows, h, w, c] -> [rows, 2h, 2w, c], each pixel repeated.
Tensor upsample_nearest_2x(const Tensor& x);

/// x [rows, h, w, c]: normalises each row and group of c/groups channels over the pixels, in f32;
/// then * weight + bias (f32 [c]); then SiLU if `silu`. Wu & He 2018.
Tensor group_norm(const Tensor& x, int groups, const Tensor& weight, const Tensor& bias, float eps,
                  bool silu);

/// First of the three steps of group_norm, for norms that span ranks or are fused into a
/// convolution. x [rows, h, w, c] -> f32 [rows, 2, c]: mean and biased variance of each channel.
Tensor channel_moments(const Tensor& x);
/// Moments f32 [rows, 2, c] -> f32 [rows, 2, c]: scale and shift that normalise groups and apply
/// weight and bias (f32 [c], either may be undefined).
Tensor group_scale_shift(const Tensor& moments, int groups, const Tensor& weight,
                         const Tensor& bias, float eps);
/// x [rows, h, w, c] * scale + shift, then SiLU if `silu`, in the dtype of x.
Tensor channel_affine(const Tensor& x, const Tensor& scale_shift, bool silu);

}  // namespace tessera::ops
