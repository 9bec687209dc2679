#pragma once

#include <string>

#include "base/json.h"

namespace tessera::base {

/// JSON for people: a line a key, a line an array of numbers or texts, and of an array of small
/// objects a line each. What is no UTF-8 becomes U+FFFD.
std::string json_text(const Json& json);

}  // namespace tessera::base
