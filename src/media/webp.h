#pragma once

#include <map>
#include <string>

#include "media/png.h"

namespace tessera::media {

/// Encodes a lossless WebP file; `text` becomes an XMP description of "key: value" lines, and
/// "parameters" also the Exif user comment. Throws Error(usage) for sizes outside WebP's limits (1
/// to 16383) or a mismatched number of pixels.
std::string encode_webp(const Image& image, const std::map<std::string, std::string>& text = {});
/// Writes a temporary file beside `path` and renames the file. Throws Error(usage) on failure.
void write_webp(const std::string& path, const Image& image,
                const std::map<std::string, std::string>& text = {});

}  // namespace tessera::media
