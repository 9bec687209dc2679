#include "server/guard.h"

#include "server/header_values.h"
#include "server/job.h"
#include "server/listener.h"

namespace tessera::server {
namespace {

bool is_open(const std::string& path) {
  return path == "/" || path.starts_with("/assets/") || path == "/healthz" || path == "/readyz";
}

}  // namespace

void Guard::refuse_key(const HttpRequest& request) const {
  const Refusal refusal(401, "authentication_error",
                        "this server wants a key: send 'Authorization: Bearer KEY'");
  if (!request.header("authorization").empty() && wrong_.count(request.client, steady_seconds()))
    throw SlowRefusal(refusal);
  throw Refusal(refusal);
}

void Guard::admit(HttpRequest& request) const {
  request.sees_all = !keys_.any();
  const std::string host = request.header("host");
  if (host.empty() || host == "twice")
    throw Refusal(400, "invalid_request_error", "a request needs one Host header");
  if (loopback_ && !is_loopback(host_of(host)))
    throw Refusal(
        421, "invalid_request_error",
        "Host '" + host.substr(0, 100) + "' is not this machine: ask for localhost or 127.0.0.1");
  const std::string origin = request.header("origin");
  if (!origin.empty() && !same_origin(origin, host))
    throw Refusal(403, "invalid_request_error", "pages of other sites may not ask this server");
  if (keys_.any() && !is_open(request.path)) {
    const KeyOwner* const owner = keys_.owner_of(request.header("authorization"));
    if (!owner) refuse_key(request);
    request.client = owner->name;
    request.sees_all = owner->is_operator;
  }
}

}  // namespace tessera::server
