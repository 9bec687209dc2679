#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/json.h"

namespace tessera::server {

/// Limits of a JSON text, checked before anything is built from it.
struct JsonLimits {
  size_t depth = 32;            ///< schemas of tools nest
  size_t names = 1000;          ///< of an object, whose names are looked through in order
  size_t values = 20000;        ///< in all: objects, lists, texts, numbers
  size_t searches = 4'000'000;  ///< names that are compared while the objects are built
};

/// A text as a JSON object, in a time that is linear in its length. Throws Refusal(400) of `param`,
/// whose message begins with `what`, for a text that is none, is no UTF-8, has a name twice in one
/// object or is above a limit.
Json parse_object(std::string_view text, const std::string& what, const std::string& param,
                  const JsonLimits& limits = {});
/// The same of the body of a request.
Json parse_body(std::string_view body);

}  // namespace tessera::server
