#include "server/guard.h"

#include "server/header_values.h"
#include "server/job.h"

namespace tessera::server {
namespace {

// Browsers send the origin of a request. A link from another site may open the page only.
bool from_elsewhere(const HttpRequest& request) {
  const std::string site = request.header("sec-fetch-site");
  if (site.empty() || site == "same-origin" || site == "none") return false;
  return request.path != "/" || request.method != "GET" ||
         request.header("sec-fetch-mode") != "navigate" ||
         request.header("sec-fetch-dest") != "document";
}

void check_site(const HttpRequest& request, bool loopback) {
  const std::string header = request.header("host"), host = host_of(header);
  if (host.empty())
    throw Refusal(400, "invalid_request_error", "a request needs one Host header, a host and port");
  if (loopback && !is_loopback(host))
    throw Refusal(
        421, "invalid_request_error",
        "Host '" + host.substr(0, 100) + "' is not this machine: ask for localhost or 127.0.0.1");
  const bool origin = request.headers.contains("origin");
  const std::string from = request.header("origin");
  if ((origin && !same_origin(from, header)) || from_elsewhere(request))
    throw Refusal(403, "invalid_request_error", "pages of other sites may not ask this server");
}

}  // namespace

bool is_open(const std::string& path) {
  return path == "/" || path.starts_with("/assets/") || path == "/healthz" || path == "/readyz";
}

void Guard::refuse_key(const HttpRequest& request) const {
  const Refusal refusal(401, "authentication_error",
                        "this server wants a key: send 'Authorization: Bearer KEY'");
  if (!request.header("authorization").empty() && wrong_.count(request.client, steady_seconds()))
    throw SlowRefusal(refusal);
  throw Refusal(refusal);
}

void Guard::admit(HttpRequest& request) const {
  request.client = request.address;
  request.sees_all = !keys_.any();
  check_site(request, loopback_);
  if (keys_.any() && !is_open(request.path)) {
    const KeyOwner* const owner = keys_.owner_of(request.header("authorization"));
    if (!owner) refuse_key(request);
    request.client = owner->name;
    request.sees_all = owner->is_operator;
  }
}

}  // namespace tessera::server
