#pragma once

#include <cstdint>
#include <vector>

#include "media/png.h"

namespace tessera::media {

/// Lines of pixels of `channels` bytes each, without gaps.
struct Pixels {
  int width = 0, height = 0, channels = 0;
  std::vector<uint8_t> bytes;
};

/// Scaled to another size by a Lanczos filter of three lobes, with the bytes that Pillow 13 gives:
/// weights of 22 bits, rounded to 8 bits between the passes, and the pass first that Pillow takes
/// first. Throws Error(usage) for sides below 1.
Pixels resize_lanczos(const Pixels& from, int width, int height);

/// How an image of another aspect becomes width x height: both sides scaled independently; scaled
/// until it fits and put into the middle, with its border lines stretched over what is empty; or
/// scaled until it covers and cut in the middle. The `resize_mode` of diffusers' VaeImageProcessor.
enum class Fitting : uint8_t { stretch, fill, crop };
Pixels fit_pixels(const Pixels& from, int width, int height, Fitting fitting);

/// The middle of an image, which is no smaller.
Pixels cut_middle(const Pixels& from, int width, int height);

Pixels pixels_of(const Image& image);
/// Brightness as Pillow's mode "L": (19595 R + 38470 G + 7471 B + 32768) >> 16.
Pixels grey_of(const Image& image);

/// Blurred by a Gaussian of so many pixels, as Pillow approximates it: three passes of a box whose
/// ends count in part, along each side. 0 changes nothing.
Pixels blurred(const Pixels& grey, double radius);

}  // namespace tessera::media
