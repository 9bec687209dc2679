#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::server {

/// Objects keep the order of their names, because chat templates print tools and arguments in the
/// given order.
using Json = nlohmann::ordered_json;

/// JSON on one line; invalid UTF-8 (a file name, say) is replaced.
inline std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::server
