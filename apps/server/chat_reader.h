#pragma once

#include <string>

#include "server/json.h"

namespace tessera::server {

/// Converts `messages`, `tools` (null: none) and the thinking switch (null: not given) of a job to
/// JSON for CompleteRequest::chat. Null fields are dropped. Roles are system, user, assistant and
/// tool. Arguments of `tool_calls` become objects, as transformers documents for templates, even if
/// they came as JSON text (OpenAI). Throws Refusal(400), with `param` as a path such as
/// messages[2].tool_calls[0].function.arguments, for malformed input and for more than `most`
/// bytes.
std::string read_chat(const Json& messages, const Json* tools, size_t most,
                      const bool* thinks = nullptr);

/// Reads a list of functions and drops null fields. Throws Refusal(400) for anything else.
Json read_tools(const Json& tools);

}  // namespace tessera::server
