#pragma once

#include "server/http.h"

namespace tessera::server {

/// Serves a file of the web page: index.html at "/", the others at "/assets/NAME". Throws
/// Refusal(404).
HttpReply page_file(const HttpRequest& request);

}  // namespace tessera::server
