#include "server/refusal.h"

namespace tessera::server {

Refusal wrong(const std::string& param, const std::string& message) {
  return {400, "invalid_request_error", message, param};
}

Refusal not_found(const std::string& message) { return {404, "not_found", message}; }

Refusal refusal_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::usage:
    case ErrorCode::plan: return {400, "invalid_request_error", error.what()};
    case ErrorCode::memory: return {503, "memory", error.what()};
    case ErrorCode::cancelled: return {409, "cancelled", error.what()};
    default:
      return {500, error.code() == ErrorCode::model ? "model" : "server_error", error.what()};
  }
}

Json body_of(const Refusal& refusal) {
  return {{"error",
           {{"message", refusal.what()},
            {"type", refusal.type()},
            {"param", refusal.param().empty() ? Json() : Json(refusal.param())},
            {"code", nullptr}}}};
}

}  // namespace tessera::server
