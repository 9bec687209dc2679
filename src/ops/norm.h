#pragma once

#include <cstdint>

#include "ops/rope.h"
#include "ops/upload.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// x [tokens, groups * width] -> the same shape and dtype. Each run of `width` channels is
/// normalised separately in f32 (width 0: all channels; per-head q/k norms use head_dim), then *
/// weight + bias (f32 [width], either may be undefined), then * (1 + scale[row]) + shift[row] (f32
/// [rows, channels], adaptive layer norm; DiT, Peebles & Xie 2023, section 3.2), row =
/// row_of[token]. With `turn`, then rotates neighbouring channels in heads of `width` channels as
/// rope() does. Writes to `into` if given; `into` must not be x.
struct NormOptions {
  Tensor weight, bias;
  Tensor shift, scale;
  RowMap row_of;
  int64_t width = 0;
  float eps = 1e-6f;
  Tensor into;
  RotaryTable turn{};
};
/// (x - mean) / sqrt(variance + eps), biased variance.
Tensor layer_norm(const Tensor& x, const NormOptions& options = {});
/// x / sqrt(mean(x^2) + eps).
Tensor rms_norm(const Tensor& x, const NormOptions& options = {});

}  // namespace tessera::ops
