#pragma once

#include <string>
#include <vector>

#include "media/png.h"

namespace tessera::media {

/// Pixels that read_image takes at most: 8192 x 8192.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

/// An image as a file holds it, turned as its Exif orientation says: 8-bit red, green and blue, of
/// grey ones the same three times, and its alpha, [height * width], or nothing without one. Alpha
/// changes no colour.
struct ReadImage {
  Image image;
  std::vector<uint8_t> alpha;
};

/// Reads a PNG, JPEG or WebP file, which its first bytes tell apart. 16 bits become 8; colour
/// profiles are not applied. `name` is what errors call it. Throws Error(usage) for another format,
/// an animation, a damaged or truncated file, and one of more than kMostPixels, before its pixels
/// take memory.
ReadImage read_image(const std::string& bytes, const std::string& name);
/// The same of a file of 256 MB at most.
ReadImage read_image_file(const std::string& path);

}  // namespace tessera::media
