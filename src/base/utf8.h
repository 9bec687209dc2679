#pragma once

#include <string>
#include <string_view>

namespace tessera::base {

/// The text as valid UTF-8: each invalid byte becomes U+FFFD.
std::string valid_utf8(std::string_view text);
/// The text in UTF-16.
std::u16string utf16(std::string_view text);

}  // namespace tessera::base
