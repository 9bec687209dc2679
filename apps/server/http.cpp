#include "server/http.h"

#include <chrono>

namespace tessera::server {

HttpReply json_reply(const Json& json, int status) {
  HttpReply reply;
  reply.status = status;
  reply.body = text_of(json) + "\n";
  return reply;
}

HttpReply reply_of(const Refusal& refusal) {
  HttpReply reply = json_reply(body_of(refusal), refusal.status());
  if (refusal.retry_after() > 0)
    reply.headers.emplace_back("Retry-After", std::to_string(refusal.retry_after()));
  if (!refusal.allow().empty()) reply.headers.emplace_back("Allow", refusal.allow());
  if (refusal.status() == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply slow_reply(const Refusal& refusal) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  HttpReply reply;
  reply.later = [refusal, due](const Wake&) -> std::optional<HttpReply> {
    if (std::chrono::steady_clock::now() < due) return std::nullopt;
    return reply_of(refusal);
  };
  return reply;
}

}  // namespace tessera::server
