#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::media {

/// An 8-bit RGB image; lines from the top, without gaps.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  ///< width * height * 3
};

/// round(x * 255) clamped to 0..255, for x [3, height, width] in [0, 1] (any float dtype); NaN
/// becomes 0. Throws Error(usage) for other shapes.
Image to_image(const tensor::Tensor& x);

/// Encodes a PNG file; `text` becomes tEXt entries (iTXt if not ASCII). Throws Error(usage) for
/// sizes below 1, a mismatched number of pixels, or invalid keys.
std::string encode_png(const Image& image, const std::map<std::string, std::string>& text = {});
/// Writes a temporary file beside `path` and renames the file. Throws Error(usage) on failure.
void write_png(const std::string& path, const Image& image,
               const std::map<std::string, std::string>& text = {});

/// Decodes a PNG file; grey, palette and 16 bits become 8-bit RGB, alpha is blended over black.
/// Throws Error(usage) for other formats, damaged files, or more than 2^28 pixels.
Image decode_png(const std::string& bytes, const std::string& name);
Image read_png(const std::string& path);

}  // namespace tessera::media
