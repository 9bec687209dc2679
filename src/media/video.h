#pragma once

#include <map>
#include <string>
#include <vector>

#include "media/png.h"

namespace tessera::media {

/// Encodes an MP4 file: H.264 at a visually lossless quality (MPEG-4 part 2 if the installed
/// libavcodec has no H.264), `rate` frames a second; "parameters" of `text` becomes the comment.
/// Throws Error(usage) for no frames, frames of unequal or odd sizes, or a rate outside 0.1 .. 240.
std::string encode_mp4(const std::vector<Image>& frames, double rate,
                       const std::map<std::string, std::string>& text = {});
/// Throws Error(usage) if libav is missing or has neither encoder.
void check_mp4();
/// Writes a temporary file beside `path` and renames the file. Throws Error(usage) on failure.
void write_mp4(const std::string& path, const std::vector<Image>& frames, double rate,
               const std::map<std::string, std::string>& text = {});

}  // namespace tessera::media
