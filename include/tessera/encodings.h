#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Bytes as base 64 with padding (RFC 4648, section 4).
std::string to_base64(std::string_view bytes);
/// The inverse. Throws Error(usage) for other texts.
std::string from_base64(std::string_view text);
/// A text as a JSON string in quotes; invalid UTF-8 becomes U+FFFD.
std::string json_quoted(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tessera
