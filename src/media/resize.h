#pragma once

#include "tensor/tensor.h"

namespace tessera::media {

/// An image f32 [channels, H, W] scaled until it covers height x width (bilinear, pixel centres at
/// halves, no smoothing), then cut from its middle: what PixArt's pipelines do behind resolution
/// binning. An image of that size stays as it is. Throws Error(usage) for other shapes.
tensor::Tensor resize_and_crop(const tensor::Tensor& x, int64_t height, int64_t width);

}  // namespace tessera::media
