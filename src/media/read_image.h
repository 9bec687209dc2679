#pragma once

#include <string>
#include <vector>

#include "media/png.h"

namespace tessera::media {

/// Maximum pixels for read_image: 8192 x 8192.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

/// A decoded image, rotated by its Exif orientation: 8-bit RGB (grey images repeat their value) and
/// alpha [height * width], empty if there is none. Alpha does not affect colours.
struct ReadImage {
  Image image;
  std::vector<uint8_t> alpha;
};

/// Decodes a PNG, JPEG or WebP file, recognised by magic bytes. 16 bits become 8; colour profiles
/// are not applied. `name` is used in errors. Throws Error(usage) for another format, an animation,
/// a damaged or truncated file, or more than kMostPixels, before memory is allocated.
ReadImage read_image(const std::string& bytes, const std::string& name);
/// Same for a file of at most 256 MB.
ReadImage read_image_file(const std::string& path);

}  // namespace tessera::media
