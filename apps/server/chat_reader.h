#pragma once

#include <string>

#include "server/json.h"

namespace tessera::server {

/// The `messages` of a job, its `tools` (null: none) and its thinking switch (null: not given) as
/// JSON that CompleteRequest::chat takes.
/// Null fields of a message are left out. Roles are system, user, assistant and tool; what an
/// assistant called (`tool_calls`) has its arguments as an object, as transformers documents it for
/// templates, also where they came as the text of one (OpenAI). Throws Refusal(400) whose `param`
/// is the path of what is wrong, such as messages[2].tool_calls[0].function.arguments, and for more
/// than `most` bytes.
std::string read_chat(const Json& messages, const Json* tools, size_t most,
                      const bool* thinks = nullptr);

/// A list of functions, without what is null of them. Throws Refusal(400) for what is none.
Json read_tools(const Json& tools);

}  // namespace tessera::server
