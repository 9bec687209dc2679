#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tessera::media {

/// Exif data (from the TIFF header on) with the texts "Software" and "parameters", where other
/// programs look in the user comment of JPEG and WebP files; "" without either. The comment is cut
/// to 32,000 UTF-16 units, so that the data fits a segment of a JPEG file.
std::string exif_data(const std::map<std::string, std::string>& text);
/// The software named by big-endian Exif data in the format of exif_data; "" if missing.
std::string exif_software(std::string_view exif);
/// The orientation (1 to 8) in Exif data of either byte order; 1 if missing.
int exif_orientation(std::string_view exif);

}  // namespace tessera::media
