#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::media {

/// An image of 8-bit red, green, blue; lines from the top, no gaps.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  ///< width * height * 3
};

/// round(x * 255) clamped to 0..255, for x [3, height, width] in [0, 1] (any float dtype); NaN is
/// 0. Throws Error(usage) for other shapes.
Image to_image(const tensor::Tensor& x);

/// The bytes of a PNG file; `text` becomes tEXt entries (iTXt where it is not ASCII).
/// Throws Error(usage) for sizes below 1 or pixels that do not fill them, or keys that PNG forbids.
std::string encode_png(const Image& image, const std::map<std::string, std::string>& text = {});
/// Writes it beside `path` and renames. Throws Error(usage) if it cannot be written.
void write_png(const std::string& path, const Image& image,
               const std::map<std::string, std::string>& text = {});

/// Reads a PNG file; grey, palette and 16 bits become 8-bit RGB, alpha is dropped over black.
/// Throws Error(usage) if it is none, is damaged, or has more than 2^28 pixels.
Image decode_png(const std::string& bytes, const std::string& name);
Image read_png(const std::string& path);

}  // namespace tessera::media
