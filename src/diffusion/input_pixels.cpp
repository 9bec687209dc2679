#include "diffusion/input_pixels.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::diffusion {

using media::Pixels;
using tensor::Tensor;

media::ReadImage read_input(const InputImage& given, const std::string& option) {
  if (!given.bytes.empty()) return media::read_image(given.bytes, option.substr(2));
  if (!given.file.empty()) return media::read_image_file(given.file);
  const Image& image = given.pixels;
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

}  // namespace tessera::diffusion
