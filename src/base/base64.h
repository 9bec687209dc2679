#pragma once

#include <string>
#include <string_view>

namespace tessera::base {

/// The bytes of a base64 text. Throws Error(model) naming `where` if the text is invalid.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace tessera::base
