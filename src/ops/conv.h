#pragma once

#include <memory>

#include "tensor/tensor.h"

namespace tessera::kernels {
struct PackedConv;
}

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Filter of a 2-D convolution in the order in which the kernels read it. Cheap to copy.
using ConvWeight = std::shared_ptr<const kernels::PackedConv>;

/// Packs weight [out, in, kh, kw] and bias [out] (may be undefined) for convolutions in `dtype`
/// (f32 or bf16). Throws Error(usage) on shapes that do not fit.
/// It lies where `weight` is, or on `device`.
ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype);
ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype, tensor::Device device);

/// The lines that a pixel of the result reads.
int64_t filter_lines(const ConvWeight& weight);

/// What happens around a convolution, in this order: x * scale + shift, SiLU, up-sampling, zero
/// padding; filter, bias; + residual.
struct Conv2dOptions {
  int stride = 1;
  int pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;  ///< zeros
  Tensor scale_shift{};        ///< f32 [rows, 2, in], see group_scale_shift
  bool silu = false;           ///< SiLU on the input
  bool upsample = false;       ///< the input counts as doubled in height and width, pixels repeated
  Tensor residual{};           ///< the shape and dtype of the result
  bool into_residual = false;  ///< the result takes the place of the residual's elements
  DType out = DType::f32;
  bool out_as_input = true;  ///< the result takes the dtype of x; `out` is ignored
};
/// x [rows, height, width, in] (channels last, a row dense) -> [rows, height', width', out]; sums
/// are f32. Rows may be 0. A pixel depends on the pixels under its filter only.
Tensor conv2d(const Tensor& x, const ConvWeight& weight, const Conv2dOptions& options);

/// x [rows, h, w, c] -> [rows, 2h, 2w, c], each pixel repeated.
Tensor upsample_nearest_2x(const Tensor& x);

/// x [rows, h, w, c]: each row and group of c/groups channels normalised over its pixels, in f32;
/// then * weight + bias (f32 [c]); then SiLU if asked. Wu & He 2018.
Tensor group_norm(const Tensor& x, int groups, const Tensor& weight, const Tensor& bias, float eps,
                  bool silu);

/// The three steps of group_norm, for norms that span ranks or go into a convolution.
/// x [rows, h, w, c] -> f32 [rows, 2, c]: mean and biased variance of each channel.
Tensor channel_moments(const Tensor& x);
/// Moments f32 [rows, 2, c] -> f32 [rows, 2, c]: the scale and shift that normalise by groups and
/// apply weight and bias (f32 [c], either may be undefined).
Tensor group_scale_shift(const Tensor& moments, int groups, const Tensor& weight,
                         const Tensor& bias, float eps);
/// x [rows, h, w, c] * scale + shift, then SiLU if asked; the dtype of x.
Tensor channel_affine(const Tensor& x, const Tensor& scale_shift, bool silu);

}  // namespace tessera::ops
