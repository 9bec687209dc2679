#include "server/guard.h"

#include "server/listener.h"

namespace tessera::server {
namespace {

bool is_open(const std::string& path) {
  return path == "/" || path.starts_with("/assets/") || path == "/healthz" || path == "/readyz";
}

}  // namespace

std::string host_of(const std::string& header) {
  if (header.starts_with('[')) return header.substr(0, header.find(']') + 1);
  return header.substr(0, header.find(':'));
}

void Guard::admit(HttpRequest& request) const {
  const std::string host = request.header("host");
  if (host.empty() || host == "twice")
    throw Refusal(400, "invalid_request_error", "a request needs one Host header");
  if (loopback_ && !is_loopback(host_of(host)))
    throw Refusal(
        421, "invalid_request_error",
        "Host '" + host.substr(0, 100) + "' is not this machine: ask for localhost or 127.0.0.1");
  const std::string origin = request.header("origin");
  if (!origin.empty() && origin != "http://" + host && origin != "https://" + host)
    throw Refusal(403, "invalid_request_error", "pages of other sites may not ask this server");
  if (keys_.any() && !is_open(request.path)) {
    request.client = keys_.name_of(request.header("authorization"));
    if (request.client.empty())
      throw Refusal(401, "authentication_error",
                    "this server wants a key: send 'Authorization: Bearer KEY'");
  }
  const std::string type = request.header("content-type");
  if (request.method == "POST" && type.substr(0, type.find(';')) != "application/json")
    throw Refusal(415, "invalid_request_error", "send a body of Content-Type: application/json");
}

}  // namespace tessera::server
