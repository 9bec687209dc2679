#pragma once

#include <variant>

#include "server/json_reader.h"
#include "server/models.h"
#include "server/request_limits.h"
#include "tessera/complete.h"
#include "tessera/request.h"

namespace tessera::server {

/// Maximum number of top log probabilities for each position.
constexpr int64_t kMostLogprobs = 20;
/// Maximum pixels of a side.
constexpr int64_t kMostSide = 1 << 16;

/// Parsed request for the library.
using Ask = std::variant<GenerateRequest, CompleteRequest>;

/// Parses the `request` of a job; names and meanings are those of the command line. No field can
/// name a file. Throws Refusal(400) with `param` for a field that is unknown, of a wrong type, out
/// of range or above a limit.
Ask read_request(const Json& request, const ModelFacts& model, const Limits& limits);

}  // namespace tessera::server
