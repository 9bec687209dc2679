#pragma once

#include <string>

#include "media/lanczos.h"
#include "media/read_image.h"
#include "tensor/tensor.h"
#include "tessera/input_image.h"

namespace tessera::diffusion {

/// Reads an input image of a request; errors name `option`, a field in backticks. Throws
/// Error(usage) if the data is not an image.
media::ReadImage read_input(const InputImage& given, const std::string& option);

/// Limits an image to `most` pixels and keeps the aspect ratio, as FLUX.2's pipelines do; 0: no
/// limit.
media::Pixels limited(const media::Pixels& image, int64_t most);

/// f32 [1, 3, height, width] in [-1, 1].
tensor::Tensor numbers_of(const media::Pixels& image);

}  // namespace tessera::diffusion
