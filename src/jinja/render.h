#pragma once

#include <ctime>
#include <string>

#include "jinja/tree.h"

namespace tessera::jinja {

/// What a template's statements write for `values` (a dict) at the time `now`, by no more `work`
/// than that. Throws Error(usage) for what the template refuses and for values that do not fit,
/// Error(model) for functions and methods that are not supported. `line` is the line that was
/// reached.
std::string rendered(const Statements& statements, const ValueDict& values, std::time_t now,
                     Work work, int& line);

}  // namespace tessera::jinja
