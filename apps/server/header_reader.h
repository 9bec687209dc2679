#pragma once

#include <microhttpd.h>

#include <string_view>
#include <vector>

#include "server/http.h"

namespace tessera::server {

/// A header as split by the HTTP parser.
struct HeaderLine {
  std::string_view name, value;
};

/// True if a text is a valid method or header name.
bool is_token(std::string_view text);

/// Stores headers in a request under lower-case names. Throws Refusal(400) for an invalid name, for
/// a control character in a value, and for a repeated header without list semantics: a proxy may
/// have read the other value.
void read_headers(const std::vector<HeaderLine>& lines, HttpRequest& request);

/// Wire size of a request line and headers if each has a line of its own with CRLF; 0 if
/// impossible. A folded line, a NUL or a bare LF changes the size.
size_t bytes_on_wire(size_t request_line, const std::vector<HeaderLine>& lines);

/// Reads headers and query of a request with a target of `target` bytes. Throws Refusal(400) as
/// read_headers() does, for lines whose parsed form differs from the sent bytes, and for a repeated
/// query name.
void read_head(MHD_Connection* connection, std::string_view method, size_t target,
               std::string_view version, HttpRequest& request);

/// Length of the announced body. Throws Refusal: 400 for an invalid number, 411 for other transfer
/// encodings, 413 for more than `most`.
uint64_t body_bytes(const HttpRequest& request, uint64_t most);

}  // namespace tessera::server
