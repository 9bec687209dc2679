#pragma once

#include <microhttpd.h>

#include <memory>

#include "server/exchange.h"
#include "server/http.h"

namespace tessera::server {

/// Memory of the answers that clients are reading; each client has a share.
class AnswerLimits {
 public:
  AnswerLimits(size_t bytes, size_t streams, size_t streams_each, size_t files)
      : bytes_(bytes, bytes / 2), streams_(streams, streams_each), files_(files, files / 2) {}
  /// Takes what the answer needs, and opens its file; a small one is read. Throws Refusal: 404 for
  /// a file that is gone, 429 or 503 where the client reads too many answers already.
  void admit(Exchange& exchange);

 private:
  void admit_file(Exchange& exchange);

  Quota bytes_, streams_, files_;
};

/// The answer as libmicrohttpd sends it; null without memory. Takes its body and its file.
MHD_Response* response_of(const std::shared_ptr<Exchange>& exchange);
/// The headers of each answer and its own. `closes`: no request may follow on the connection.
void add_headers(MHD_Response& response, const HttpReply& reply, bool closes);

}  // namespace tessera::server
