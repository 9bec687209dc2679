#pragma once

#include <microhttpd.h>

#include <memory>

#include "server/exchange.h"
#include "server/http.h"

namespace tessera::server {

/// Limits the memory of answers that clients are reading; each client has a share.
class AnswerLimits {
 public:
  AnswerLimits(size_t bytes, size_t streams, size_t streams_each, size_t files)
      : bytes_(bytes, bytes / 2), streams_(streams, streams_each), files_(files, files / 2) {}
  /// Reserves the memory of an answer and opens the answer's file; small files are read. Throws
  /// Refusal: 404 for a missing file, 429 or 503 if the client reads too many answers already.
  void admit(Exchange& exchange);

 private:
  void admit_file(Exchange& exchange);

  Quota bytes_, streams_, files_;
};

/// Builds the libmicrohttpd response and takes body and file of the answer; null if out of memory.
MHD_Response* response_of(const std::shared_ptr<Exchange>& exchange);
/// Adds the common headers and the answer's own. `closes`: the connection closes after this answer.
void add_headers(MHD_Response& response, const HttpReply& reply, bool closes);

}  // namespace tessera::server
