#pragma once

#include "base/json.h"

namespace tessera::base {

/// A part of an object, where it is; null without it, and of what is no object.
const Json& member(const Json& json, const char* key);

}  // namespace tessera::base
