#pragma once

#include <map>
#include <string>

#include "media/png.h"

namespace tessera::media {

/// The bytes of a JPEG file at quality 95 without chroma subsampling; "parameters" of `text`
/// becomes its Exif user comment. Throws Error(usage) for sizes below 1 or above 65500, or pixels
/// that do not fill them.
std::string encode_jpeg(const Image& image, const std::map<std::string, std::string>& text = {});
/// Writes it beside `path` and renames. Throws Error(usage) if it cannot be written.
void write_jpeg(const std::string& path, const Image& image,
                const std::map<std::string, std::string>& text = {});

}  // namespace tessera::media
