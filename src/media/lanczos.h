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

/// Lanczos resampling with three lobes, byte-identical to Pillow 13: weights of 22 bits, rounding
/// to 8 bits between the passes, and Pillow's order of passes. Throws Error(usage) for sides below
/// 1.
Pixels resize_lanczos(const Pixels& from, int width, int height);

/// Fits an image of another aspect ratio into width x height: scales both sides independently;
/// scales to fit, centred, with border lines stretched over the empty part; or scales to cover and
/// crops the centre. The `resize_mode` of diffusers' VaeImageProcessor.
enum class Fitting : uint8_t { stretch, fill, crop };
Pixels fit_pixels(const Pixels& from, int width, int height, Fitting fitting);

/// Crops the centre of an image at least as large.
Pixels cut_middle(const Pixels& from, int width, int height);

Pixels pixels_of(const Image& image);
/// Luma as in Pillow's mode "L": (19595 R + 38470 G + 7471 B + 32768) >> 16.
Pixels grey_of(const Image& image);

/// Gaussian blur with a radius in pixels, approximated as in Pillow: three passes of a box with
/// fractional ends, along each side. 0 changes nothing.
Pixels blurred(const Pixels& grey, double radius);

}  // namespace tessera::media
