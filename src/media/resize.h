#pragma once

#include "tensor/tensor.h"

namespace tessera::media {

/// Scales an image f32 [channels, H, W] to cover height x width (bilinear, pixel centres at halves,
/// no antialiasing), then crops the centre, like PixArt's pipelines after resolution binning. An
/// image of the exact size is unchanged. Throws Error(usage) for other shapes.
tensor::Tensor resize_and_crop(const tensor::Tensor& x, int64_t height, int64_t width);

}  // namespace tessera::media
