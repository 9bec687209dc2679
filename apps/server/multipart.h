#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

/// Limits of a form.
struct FormLimits {
  size_t parts = 64;
  size_t head = 4096;  ///< bytes of the headers of a part
  size_t lines = 16;   ///< of these
};

/// A field of a form; it points into the body.
struct FormPart {
  std::string name;
  bool file = false;  ///< it has a file name
  std::string_view content;
};

/// Reads a body of multipart/form-data (RFC 7578), in a time that is linear in its length.
/// `content_type` is the header with the boundary. Throws Refusal(400) for what is malformed or
/// nested, has an encoding, or is above a limit.
std::vector<FormPart> parse_form(std::string_view body, const std::string& content_type,
                                 const FormLimits& limits = {});

}  // namespace tessera::server
