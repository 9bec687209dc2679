#include "diffusion/overlay.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace tessera::diffusion {
namespace {

using media::Pixels;

/// A side of a region, from `begin` to `end` of `size` pixels.
struct Span {
  int begin = 0, end = 0, size = 0;

  int length() const { return end - begin; }
  // Widens the span to a length by the same on both sides, then moves the span into the image.
  void widen(double length_wanted) {
    const int more = static_cast<int>(length_wanted - length());
    const int before = more >= 0 ? more / 2 : (more - 1) / 2;  // rounded down
    begin -= before;
    end += more - before;
    if (end >= size) begin -= end - size, end = size;
    if (begin < 0) end -= begin, begin = 0;
    end = std::min(end, size);
  }
};

std::pair<Span, Span> filled(const Pixels& mask) {
  Span across{mask.width, 0, mask.width}, down{mask.height, 0, mask.height};
  for (int y = 0; y < mask.height; ++y)
    for (int x = 0; x < mask.width; ++x) {
      if (mask.bytes[size_t(y) * size_t(mask.width) + size_t(x)] == 0) continue;
      across.begin = std::min(across.begin, x);
      across.end = std::max(across.end, x + 1);
      down.begin = std::min(down.begin, y);
      down.end = std::max(down.end, y + 1);
    }
  return {across, down};
}

int divided_by_255(int x) { return (x + 128 + ((x + 128) >> 8)) >> 8; }

// Lays a channel of the original over an image by alpha, as Pillow composes them.
uint8_t composed(uint8_t pixel, uint8_t original, int alpha) {
  constexpr int kBits = 7;
  if (alpha == 0) return pixel;
  const int faded = divided_by_255(original * alpha);
  const int over = alpha == 255 ? faded : std::min(255, faded * 255 / alpha);
  const int own = alpha << kBits, inverse = (255 << kBits) - own;
  const int sum = over * own + pixel * inverse + (0x80 << kBits);
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 8 >> kBits);
}

}  // namespace

Overlay masked_region(const Pixels& image, const Pixels& mask, int width, int height, int pad) {
  require(mask.width == image.width && mask.height == image.height, ErrorCode::usage,
          "`padding_mask_crop`: the mask has {} x {} pixels, the image {} x {}; expected a mask of "
          "the same size",
          mask.width, mask.height, image.width, image.height);
  auto [across, down] = filled(mask);
  require(across.end > 0, ErrorCode::usage,
          "`padding_mask_crop`: the mask is black; expected one that is white where to paint");
  for (Span* side : {&across, &down}) {
    side->begin = std::max(side->begin - pad, 0);
    side->end = std::min(side->end + pad, side->size);
  }
  const double aspect = double(width) / double(height);
  if (double(across.length()) / double(down.length()) > aspect)
    down.widen(double(across.length()) / aspect);
  else
    across.widen(double(down.length()) * aspect);
  return {image, mask, across.begin, down.begin, across.length(), down.length()};
}

Pixels region_of(const Pixels& image, const Overlay& region) {
  Pixels result{region.width, region.height, image.channels, {}};
  const auto channels = static_cast<size_t>(image.channels);
  for (int y = 0; y < region.height; ++y) {
    const size_t line = size_t(region.top + y) * size_t(image.width) + size_t(region.left);
    const auto from = image.bytes.begin() + static_cast<ptrdiff_t>(line * channels);
    result.bytes.insert(result.bytes.end(), from,
                        from + static_cast<ptrdiff_t>(size_t(region.width) * channels));
  }
  return result;
}

Image overlaid(const Image& image, const Overlay& overlay) {
  const Pixels own{static_cast<int>(image.width), static_cast<int>(image.height), 3, image.rgb};
  const Pixels fitted = media::fit_pixels(own, overlay.width, overlay.height, media::Fitting::crop);
  Image whole = image;
  whole.width = overlay.image.width;
  whole.height = overlay.image.height;
  whole.rgb.assign(overlay.image.bytes.size(), 0);
  for (int y = 0; y < overlay.height; ++y)
    std::copy_n(
        fitted.bytes.begin() + ptrdiff_t{3} * y * overlay.width, 3 * overlay.width,
        whole.rgb.begin() + ptrdiff_t{3} * ((overlay.top + y) * whole.width + overlay.left));
  for (size_t i = 0; i < whole.rgb.size(); ++i)
    whole.rgb[i] = composed(whole.rgb[i], overlay.image.bytes[i], 255 - overlay.mask.bytes[i / 3]);
  return whole;
}

}  // namespace tessera::diffusion
