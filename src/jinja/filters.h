#pragma once

#include <string>

#include "jinja/methods.h"
#include "jinja/value.h"

namespace tessera::jinja {

/// Whether there is a filter, or a test, of this name.
bool is_filter(const std::string& name);
bool is_test(const std::string& name);
/// of|name(arguments). Throws Error(usage) for values that do not fit.
Value filtered(const std::string& name, const Value& of, const Arguments& arguments, Work& work);
/// of is name(arguments). Throws Error(usage) alike.
bool tested(const std::string& name, const Value& of, const Arguments& arguments, Work& work);

}  // namespace tessera::jinja
