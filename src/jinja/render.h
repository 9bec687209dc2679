#pragma once

#include <ctime>
#include <string>

#include "jinja/tree.h"

namespace tessera::jinja {

/// Renders statements for `values` (a dict) at the time `now`, limited by `work`. Throws
/// Error(usage) for errors raised by the template and for unsuitable values, Error(model) for
/// unsupported functions and methods. `line` is the last line reached.
std::string rendered(const Statements& statements, const ValueDict& values, std::time_t now,
                     Work work, int& line);

}  // namespace tessera::jinja
