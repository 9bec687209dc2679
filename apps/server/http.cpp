#include "server/http.h"

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
  if (refusal.status() == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace tessera::server
