#pragma once

#include <map>
#include <string>
#include <vector>

#include "media/png.h"

namespace tessera::media {

/// The bytes of an MP4 file: H.264 at a quality that hides its losses (MPEG-4 part 2 where this
/// machine's libavcodec has no H.264), `rate` frames a second; "parameters" of `text` becomes its
/// comment. Throws Error(usage) for no frames, frames of unequal or odd sizes, or a rate outside
/// 0.1 .. 240.
std::string encode_mp4(const std::vector<Image>& frames, double rate,
                       const std::map<std::string, std::string>& text = {});
/// Throws Error(usage) if this machine has no libav, or one that encodes neither.
void check_mp4();
/// Writes it beside `path` and renames. Throws Error(usage) if it cannot be written.
void write_mp4(const std::string& path, const std::vector<Image>& frames, double rate,
               const std::map<std::string, std::string>& text = {});

}  // namespace tessera::media
