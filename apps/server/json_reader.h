#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/json.h"

namespace tessera::server {

/// Limits of a JSON text, checked before anything is built from it.
struct JsonLimits {
  size_t depth = 32;            ///< schemas of tools are nested
  size_t names = 1000;          ///< names of an object, searched linearly
  size_t values = 20000;        ///< total of objects, lists, texts and numbers
  size_t searches = 4'000'000;  ///< name comparisons while objects are built
};

/// Parses a JSON object in time linear in its length. Throws Refusal(400) of `param`, with a
/// message beginning with `subject`, for text that is not an object, invalid UTF-8, repeated names
/// or an exceeded limit.
Json parse_object(std::string_view text, const std::string& subject, const std::string& param,
                  const JsonLimits& limits = {});
/// Same for the body of a request.
Json parse_body(std::string_view body);

}  // namespace tessera::server
