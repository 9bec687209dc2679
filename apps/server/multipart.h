#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

/// Limits of a form.
struct FormLimits {
  size_t parts = 64;
  size_t head = 4096;  ///< bytes of the headers of a part
  size_t lines = 16;   ///< number of header lines
};

/// A form field; points into the body.
struct FormPart {
  std::string name;
  bool file = false;  ///< has a file name
  std::string_view content;
};

/// Parses a multipart/form-data body (RFC 7578) in linear time. `content_type` is the header with
/// the boundary. Throws Refusal(400) for malformed or nested parts, an encoding, or an exceeded
/// limit.
std::vector<FormPart> parse_form(std::string_view body, const std::string& content_type,
                                 const FormLimits& limits = {});

}  // namespace tessera::server
