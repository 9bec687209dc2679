#pragma once

#include <microhttpd.h>

#include <string_view>
#include <vector>

#include "server/http.h"

namespace tessera::server {

/// A header as the parser of HTTP split it.
struct HeaderLine {
  std::string_view name, value;
};

/// Whether a text can be the name of a method or a header.
bool is_token(std::string_view text);

/// Puts headers into a request, by their names in small letters. Throws Refusal(400) for a name
/// that is no token, a control character in a value, and a header that stands twice although it is
/// no list: who stands between may have read the other one.
void read_headers(const std::vector<HeaderLine>& lines, HttpRequest& request);

/// The bytes that a request line and headers take on the wire when each stands on a line of its own
/// that ends in CRLF; 0 where that cannot be. A fold, a NUL or a bare LF makes more or less of
/// them.
size_t bytes_on_wire(size_t request_line, const std::vector<HeaderLine>& lines);

/// Reads the headers and the query of a connection's request, whose target had `target` bytes.
/// Throws Refusal(400) like read_headers(), for lines that were read otherwise than they were sent,
/// and for a name that stands twice in the query.
void read_head(MHD_Connection* connection, std::string_view method, size_t target,
               std::string_view version, HttpRequest& request);

/// The bytes of the body that a request announces. Throws Refusal: 400 for what is no number, 411
/// for another way to send a body, 413 for more than `most`.
uint64_t body_bytes(const HttpRequest& request, uint64_t most);

}  // namespace tessera::server
