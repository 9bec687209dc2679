#pragma once

#include "server/fields.h"
#include "server/request_limits.h"
#include "tessera/request.h"

namespace tessera::server {

/// Maximum number of input images of a request.
constexpr size_t kMostImages = 16;

/// Reads `image` (the bytes of a file in base64, or a list of them), `mask` and `outpaint`. Throws
/// Refusal(400).
void read_image_fields(Fields& fields, GenerateRequest& q);

/// Replaces image bytes by their sizes in a request shown to a client.
Json without_images(Json request);

/// True if a PNG or WebP file declares an alpha channel.
bool has_alpha(std::string_view file);

}  // namespace tessera::server
