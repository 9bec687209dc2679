#include "server/header_values.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

namespace tessera::server {
namespace {

bool is_address(int family, const std::string& text) {
  in6_addr address{};
  return inet_pton(family, text.c_str(), &address) == 1;
}

bool is_port(const std::string& text) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return !text.empty() && text.size() <= 5 && std::ranges::all_of(text, digit) &&
         std::stoi(text) <= 65535;
}

bool is_name(const std::string& text) {
  const auto of_name = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  };
  return !text.empty() && text.size() <= 255 && std::ranges::all_of(text, of_name);
}

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
  const bool brackets = header.starts_with('[');
  const size_t end = brackets ? header.find(']') + 1 : std::min(header.find(':'), header.size());
  std::string host = small(header.substr(0, end));
  const std::string rest = header.substr(end);
  if (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1)))) return "";
  if (brackets) return end > 0 && is_address(AF_INET6, host.substr(1, host.size() - 2)) ? host : "";
  if (host.ends_with('.')) host.pop_back();
  return is_name(host) ? host : "";
}

bool is_loopback(const std::string& host) {
  return small(host) == "localhost" || host == "::1" || host == "[::1]" ||
         (host.starts_with("127.") && is_address(AF_INET, host));
}

bool same_origin(const std::string& origin, const std::string& host) {
  const size_t end = origin.find("://");
  if (end == std::string::npos) return false;
  const std::string scheme = small(origin.substr(0, end)), from = origin.substr(end + 3);
  if (scheme != "http" && scheme != "https") return false;
  const auto port = [&](const std::string& authority) {
    const std::string explicit_port = port_of(authority);
    return explicit_port.empty() ? (scheme == "http" ? ":80" : ":443") : explicit_port;
  };
  const std::string name = host_of(from);
  return !name.empty() && name == host_of(host) && port(from) == port(host);
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
    const std::string candidate = trimmed(header.substr(from, comma - from));
    if (candidate == "*" || candidate == tag || candidate == "W/" + tag) return true;
    from = comma + 1;
  }
  return false;
}

}  // namespace tessera::server
