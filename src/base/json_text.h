#pragma once

#include <string>

#include "base/json.h"

namespace tessera::base {

/// JSON for people: a line for each key, for each array of numbers or texts, and for each small
/// object of an array. Invalid UTF-8 becomes U+FFFD.
std::string json_text(const Json& json);

}  // namespace tessera::base
