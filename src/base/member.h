#pragma once

#include "base/json.h"

namespace tessera::base {

/// A member of an object; null if absent, and null if `json` is no object.
const Json& member(const Json& json, const char* key);

}  // namespace tessera::base
