#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::base {

using Json = nlohmann::json;

/// Parses untrusted text: at most 64 MB, 100 levels deep, no duplicate keys in an object. Python's
/// Infinity becomes the largest double, its NaN null. Throws Error(model) naming `name` and the
/// place.
Json parse_json(std::string_view text, const std::string& name);
/// Parses a file of a model. Throws Error(model) if the file cannot be read.
Json read_json(const std::string& path);

}  // namespace tessera::base
