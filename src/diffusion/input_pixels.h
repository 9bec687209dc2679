#pragma once

#include <string>

#include "media/lanczos.h"
#include "media/read_image.h"
#include "tensor/tensor.h"
#include "tessera/input_image.h"

namespace tessera::diffusion {

/// The pixels of an image that a request gives; errors call it `option`, a field in backticks.
/// Throws Error(usage) for what is no image.
media::ReadImage read_input(const InputImage& given, const std::string& option);

/// The image, or the same aspect with so many pixels at most, as FLUX.2's pipelines scale it; 0:
/// any number.
media::Pixels limited(const media::Pixels& image, int64_t most);

/// f32 [1, 3, height, width] in [-1, 1].
tensor::Tensor numbers_of(const media::Pixels& image);

}  // namespace tessera::diffusion
