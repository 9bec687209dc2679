#include "server/refusal.h"

namespace tessera::server {

Refusal wrong(const std::string& param, const std::string& message) {
  return {400, "invalid_request_error", message, param};
}

Refusal not_found(const std::string& message) { return {404, "not_found", message}; }

Json body_of(const Refusal& refusal) {
  return {{"error",
           {{"message", refusal.what()},
            {"type", refusal.type()},
            {"param", refusal.param().empty() ? Json() : Json(refusal.param())},
            {"code", nullptr}}}};
}

}  // namespace tessera::server
