#pragma once

#include "server/fields.h"
#include "server/request_limits.h"
#include "tessera/request.h"

namespace tessera::server {

/// Images that a request starts from or looks at, at most.
constexpr size_t kMostImages = 16;

/// Reads `image` (the bytes of a file in base64, or a list of them), `mask`, `strength`,
/// `mask_alpha`, `mask_soft`, `mask_blur`, `image_fit` and `outpaint`. Throws Refusal(400).
void read_image_fields(Fields& fields, GenerateRequest& q);

/// A request as a client sees it again: sizes in place of the bytes of its images.
Json without_images(Json request);

/// Whether the bytes of a PNG or WebP file say that it has an alpha channel.
bool has_alpha(std::string_view file);

}  // namespace tessera::server
