#pragma once

#include <string>

namespace tessera::media {

/// Exif data (from its TIFF header on) whose one entry is the user's comment, where JPEG and WebP
/// files of other programs hold the parameters. Cut to 32,000 UTF-16 units, so that it fits a
/// segment of a JPEG file.
std::string exif_comment(const std::string& text);

}  // namespace tessera::media
