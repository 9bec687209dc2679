#pragma once

#include <string>

#include "media/lanczos.h"
#include "media/read_image.h"
#include "tensor/tensor.h"
#include "tessera/input_image.h"

namespace tessera::diffusion {

/// Reads an input image of a request; errors name `option`, a field in backticks. Throws
/// Error(usage) if the data is not an image.
media::ReadImage read_input(const InputImage& input, const std::string& option);

/// Limits an image to `most` pixels and keeps the aspect ratio, as FLUX.2's pipelines do; 0: no
/// limit.
media::Pixels limited(const media::Pixels& image, int64_t most);

/// f32 [1, 3, height, width] in [-1, 1].
tensor::Tensor numbers_of(const media::Pixels& image);

/// The pixels of a mask under each pixel of the latent: f32 [1, factor * factor, h, w], lines of a
/// square behind each other; white is 1. A soft mask keeps grey, else grey counts from one half on.
tensor::Tensor mask_pixels(const media::Pixels& mask, int64_t factor, bool soft);
/// An image f32 [1, 3, H, W] that is 0 where such a mask is white.
tensor::Tensor masked_image(const tensor::Tensor& pixels, const tensor::Tensor& mask,
                            int64_t factor);

}  // namespace tessera::diffusion
