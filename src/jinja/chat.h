#pragma once

#include <string>
#include <string_view>

#include "jinja/value.h"

namespace tessera::jinja {

/// JSON as a template's value; keys keep their order. Throws Error(model) naming `name` for what is
/// no JSON within the limits of base::parse_json, or holds a number beyond 64 bits.
Value value_of_json(std::string_view text, const std::string& name);

/// A chat as the values of a chat template: the JSON [{"role": ..., "content": ...}, ...], or an
/// object whose "messages" are such a list, with "tools" and whatever else a template reads. Keys
/// keep their order. Throws Error(usage) for what is no such thing.
ValueDict chat_values(std::string_view json);

}  // namespace tessera::jinja
