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
/// (f32 or bf16).
ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype);

struct Conv2dOptions {
  int stride = 1;
  int pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;  ///< zeros
};
/// x [rows, height, width, in] (channels last) -> [rows, height', width', out], dtype of x, sums f32.
Tensor conv2d(const Tensor& x, const ConvWeight& weight, const Conv2dOptions& options);
/// x [rows, h, w, c] -> [rows, 2h, 2w, c], each pixel repeated.
Tensor upsample_nearest_2x(const Tensor& x);
/// x [rows, h, w, c]: each row and group of c/groups channels normalised over its pixels, in f32;
/// then * weight + bias (f32 [c]); then SiLU if asked. Wu & He 2018.
Tensor group_norm(const Tensor& x, int groups, const Tensor& weight, const Tensor& bias, float eps,
                  bool silu);

}  // namespace tessera::ops
