#pragma once

#include "base/input_file.h"

namespace tessera::media {

/// Whether a file is an image (PNG, JPEG, WebP) that says in its metadata that Tessera made it.
bool is_own_image(const base::InputFile& file);
/// The same of an MP4 video, by its comment.
bool is_own_video(const base::InputFile& file);

}  // namespace tessera::media
