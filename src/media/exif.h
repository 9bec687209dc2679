#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tessera::media {

/// Exif data (from its TIFF header on) of the texts "Software" and "parameters", which other
/// programs look for in the user's comment of JPEG and WebP files; "" without either. The comment
/// is cut to 32,000 UTF-16 units, so that all fits a segment of a JPEG file.
std::string exif_data(const std::map<std::string, std::string>& text);
/// The software that big-endian Exif data names, as exif_data writes it; "" if it names none.
std::string exif_software(std::string_view exif);
/// The orientation (1 to 8) that Exif data of either byte order names; 1 if it names none.
int exif_orientation(std::string_view exif);

}  // namespace tessera::media
