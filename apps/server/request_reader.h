#pragma once

#include <variant>

#include "server/json_reader.h"
#include "server/models.h"
#include "server/request_limits.h"
#include "tessera/complete.h"
#include "tessera/request.h"

namespace tessera::server {

/// The likeliest tokens at a position that an answer tells at most.
constexpr int64_t kMostLogprobs = 20;
/// Pixels of a side at most.
constexpr int64_t kMostSide = 1 << 16;

/// What a body asks of the library.
using Ask = std::variant<GenerateRequest, CompleteRequest>;

/// Reads the `request` of a job, its names and meanings those of the command line. Nothing in it
/// can name a file. Throws Refusal(400) whose `param` is what is unknown, of another type, out of
/// its range or over a limit.
Ask read_request(const Json& request, const ModelFacts& model, const Limits& limits);

}  // namespace tessera::server
