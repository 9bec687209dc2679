#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "server/json.h"
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

/// A text as a JSON object. Throws Refusal(400) of `param`, which begins with `what`, for what is
/// none, names one thing twice or more than 1000 in one object, is no UTF-8 or is nested deeper
/// than 32.
Json parse_object(std::string_view text, const std::string& what, const std::string& param);
/// The same of a body.
Json parse_body(std::string_view body);

/// Reads the `request` of a job, its names and meanings those of the command line. Nothing in it
/// can name a file. Throws Refusal(400) whose `param` is what is unknown, of another type, out of
/// its range or over a limit.
Ask read_request(const Json& request, const ModelFacts& model, const Limits& limits);

}  // namespace tessera::server
