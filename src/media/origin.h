#pragma once

#include "base/input_file.h"

namespace tessera::media {

/// True if an image file (PNG, JPEG, WebP) has metadata of Tessera.
bool is_own_image(const base::InputFile& file);
/// Same for an MP4 video, from the comment.
bool is_own_video(const base::InputFile& file);

}  // namespace tessera::media
