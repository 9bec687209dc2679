#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::server {

/// Objects keep the order of their names: chat templates write tools and arguments as they came.
using Json = nlohmann::ordered_json;

/// One line of JSON; bytes that are no UTF-8 (of a file's name, say) are replaced.
inline std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::server
