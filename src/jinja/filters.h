#pragma once

#include <string>

#include "jinja/methods.h"
#include "jinja/value.h"

namespace tessera::jinja {

/// True if there is a filter, or a test, with this name.
bool is_filter(const std::string& name);
bool is_test(const std::string& name);
/// Applies of|name(arguments). Throws Error(usage) for unsuitable values.
Value filtered(const std::string& name, const Value& of, const Arguments& arguments, Work& work);
/// Evaluates of is name(arguments). Throws Error(usage) alike.
bool tested(const std::string& name, const Value& of, const Arguments& arguments, Work& work);

}  // namespace tessera::jinja
