#pragma once

#include <map>
#include <string>

#include "media/png.h"

namespace tessera::media {

/// Encodes a JPEG file at quality 95 without chroma subsampling; "parameters" of `text` becomes the
/// Exif user comment. Throws Error(usage) for sizes below 1 or above 65500, or a mismatched number
/// of pixels.
std::string encode_jpeg(const Image& image, const std::map<std::string, std::string>& text = {});
/// Writes a temporary file beside `path` and renames the file. Throws Error(usage) on failure.
void write_jpeg(const std::string& path, const Image& image,
                const std::map<std::string, std::string>& text = {});

}  // namespace tessera::media
