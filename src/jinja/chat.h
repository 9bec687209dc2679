#pragma once

#include <string>
#include <string_view>

#include "jinja/value.h"

namespace tessera::jinja {

/// Converts JSON to a template value; keys keep their order. Throws Error(model) naming `name` for
/// text that is not JSON within the limits of base::parse_json, or has a number beyond 64 bits.
Value value_of_json(std::string_view text, const std::string& name);

/// Values of a chat template from the JSON of a chat: [{"role": ..., "content": ...}, ...], or an
/// object with such a list as "messages", with "tools" and other template variables. Keys keep
/// their order. Throws Error(usage) for anything else.
ValueDict chat_values(std::string_view json);

}  // namespace tessera::jinja
