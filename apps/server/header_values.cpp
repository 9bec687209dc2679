#include "server/header_values.h"

#include <algorithm>
#include <cctype>

namespace tessera::server {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// ":8080" of "localhost:8080"; "": none.
std::string port_of(const std::string& authority) {
  const size_t name = authority.starts_with('[') ? authority.find(']') : 0;
  const size_t colon = authority.find(':', std::min(name, authority.size()));
  return colon == std::string::npos ? "" : authority.substr(colon);
}

}  // namespace

std::string small(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string media_type_of(const std::string& header) {
  return small(trimmed(header.substr(0, header.find(';'))));
}

std::string host_of(const std::string& header) {
  const std::string host = small(header);
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  const std::string name = host.substr(0, host.find(':'));
  return name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
}

bool same_origin(const std::string& origin, const std::string& host) {
  const size_t end = origin.find("://");
  if (end == std::string::npos) return false;
  const std::string scheme = small(origin.substr(0, end)), from = origin.substr(end + 3);
  if (scheme != "http" && scheme != "https") return false;
  const auto port = [&](const std::string& authority) {
    const std::string given = port_of(authority);
    return given.empty() ? (scheme == "http" ? ":80" : ":443") : given;
  };
  return host_of(from) == host_of(host) && port(from) == port(host);
}

std::string credentials_of(const std::string& header, const std::string& scheme) {
  const size_t space = header.find(' ');
  if (space == std::string::npos || small(header.substr(0, space)) != small(scheme)) return "";
  return trimmed(header.substr(space));
}

std::string first_of(const std::string& header) {
  return small(trimmed(header.substr(0, header.find(','))));
}

bool names_tag(const std::string& header, const std::string& tag) {
  for (size_t from = 0; from < header.size();) {
    const size_t comma = std::min(header.find(',', from), header.size());
    const std::string one = trimmed(header.substr(from, comma - from));
    if (one == "*" || one == tag || one == "W/" + tag) return true;
    from = comma + 1;
  }
  return false;
}

}  // namespace tessera::server
