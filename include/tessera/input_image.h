#pragma once

#include <string>

#include "tessera/image.h"

namespace tessera {

/// An image as input of a request: a file, its bytes, or pixels. Files are PNG, JPEG or WebP, and
/// are turned by their Exif orientation.
struct InputImage {
  std::string file{};   ///< path
  std::string bytes{};  ///< content of a file
  Image pixels{};       ///< any size
};

/// Fitting of an image to the size of a run: both sides scaled on their own; scaled until the image
/// fits, with stretched borders; or until the image covers the size, and cut. The `resize_mode` of
/// diffusers: default, fill, crop.
enum class ImageFitting { stretch, fill, crop };

/// Pixels to add around an image.
struct Margins {
  int left = 0, top = 0, right = 0, bottom = 0;
  bool any() const { return left > 0 || top > 0 || right > 0 || bottom > 0; }
};
/// Reads "64" (all sides), or "left,top,right,bottom". Throws Error(usage).
Margins parse_margins(const std::string& text);

}  // namespace tessera
