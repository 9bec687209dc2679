#include "diffusion/input_pixels.h"

#include <cmath>

#include "base/fail.h"
#include "tessera/field_names.h"

namespace tessera::diffusion {

using media::Pixels;
using tensor::Tensor;

media::ReadImage read_input(const InputImage& input, const std::string& option) {
  if (!input.bytes.empty()) return media::read_image(input.bytes, plain_fields(option));
  if (!input.file.empty()) return media::read_image_file(input.file);
  const Image& image = input.pixels;
  const bool whole = image.width > 0 && image.height > 0 && image.width <= media::kMostPixels &&
                     image.height <= media::kMostPixels / image.width &&
                     std::ssize(image.rgb) == image.width * image.height * 3;
  require(whole, ErrorCode::usage,
          "{}: an image of {} x {} with {} bytes; expected 3 bytes for each of at most 2^26 pixels",
          option, image.width, image.height, image.rgb.size());
  return {{static_cast<int>(image.width), static_cast<int>(image.height), image.rgb}, {}};
}

Pixels limited(const Pixels& image, int64_t most) {
  const double area = double(image.width) * double(image.height);
  if (most == 0 || area <= double(most)) return image;
  const double scale = std::sqrt(double(most) / area);
  const auto side = [&](int pixels) { return std::max(static_cast<int>(pixels * scale), 1); };
  return media::resize_lanczos(image, side(image.width), side(image.height));
}

Tensor numbers_of(const Pixels& image) {
  const int64_t count = int64_t{image.width} * image.height;
  Tensor x = Tensor::empty({1, 3, image.height, image.width}, tensor::DType::f32);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < count; ++i)
      x.data<float>()[c * count + i] =
          2.0f * (static_cast<float>(image.bytes[static_cast<size_t>(i * 3 + c)]) / 255.0f) - 1.0f;
  return x;
}

Tensor mask_pixels(const media::Pixels& mask, int64_t factor, bool soft) {
  const int64_t height = mask.height / factor, width = mask.width / factor;
  const Tensor x = Tensor::empty({1, factor * factor, height, width}, tensor::DType::f32);
  float* out = x.data<float>();
  for (int64_t dy = 0; dy < factor; ++dy)
    for (int64_t dx = 0; dx < factor; ++dx)
      for (int64_t r = 0; r < height; ++r)
        for (int64_t c = 0; c < width; ++c) {
          const auto at = static_cast<size_t>((r * factor + dy) * mask.width + c * factor + dx);
          const uint8_t level = mask.bytes[at];
          *out++ = soft ? float(level) / 255.0f : level >= 128 ? 1.0f : 0.0f;
        }
  return x;
}

Tensor masked_image(const Tensor& pixels, const Tensor& mask, int64_t factor) {
  const int64_t height = pixels.size(2), width = pixels.size(3);
  const Tensor x = Tensor::empty(pixels.shape(), tensor::DType::f32);
  const float* level = mask.data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t row = i / width % height, column = i % width;
    const int64_t channel = row % factor * factor + column % factor;
    const int64_t at = (channel * mask.size(2) + row / factor) * mask.size(3) + column / factor;
    x.data<float>()[i] = pixels.data<float>()[i] * (1.0f - level[at]);
  }
  return x;
}

}  // namespace tessera::diffusion
