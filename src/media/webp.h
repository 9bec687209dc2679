#pragma once

#include <map>
#include <string>

#include "media/png.h"

namespace tessera::media {

/// The bytes of a lossless WebP file; `text` stands in its XMP part, a description of "key: value"
/// lines, and "parameters" of it in the Exif user comment. Throws Error(usage) for sizes that WebP
/// does not take (1 to 16383) or pixels that do not fill them.
std::string encode_webp(const Image& image, const std::map<std::string, std::string>& text = {});
/// Writes it beside `path` and renames. Throws Error(usage) if it cannot be written.
void write_webp(const std::string& path, const Image& image,
                const std::map<std::string, std::string>& text = {});

}  // namespace tessera::media
