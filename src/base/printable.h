#pragma once

#include <string>
#include <string_view>

namespace tessera::base {

/// A name from a file, in quotes and fit for one line of an error message: control characters
/// become
/// '?', and what is longer than 120 bytes is cut.
std::string printable(std::string_view text);

}  // namespace tessera::base
