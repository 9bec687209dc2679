#include "server/header_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <set>

#include "server/header_values.h"

namespace tessera::server {
namespace {

// List-valued headers, which proxies may split into several lines.
const std::set<std::string> kLists{"accept",          "accept-charset", "accept-encoding",
                                   "accept-language", "cache-control",  "cookie",
                                   "forwarded",       "pragma",         "via",
                                   "x-forwarded-for"};

bool has_control(std::string_view text) {
  return std::ranges::any_of(text,
                             [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse(const std::string& message) {
  throw Refusal(400, "invalid_request_error", message);
}

MHD_Result add_header(void* to, MHD_ValueKind, const char* name, size_t name_size,
                      const char* value, size_t size) {
  auto& lines = *static_cast<std::vector<HeaderLine>*>(to);
  lines.push_back({{name, name_size}, value ? std::string_view(value, size) : std::string_view()});
  return MHD_YES;
}

// Only a former colon and blanks may separate name and value.
bool only_a_colon(const char* from, size_t bytes) {
  return bytes > 0 && std::all_of(from + 1, from + bytes,
                                  [](char c) { return c == ' ' || c == '\t' || c == '\0'; });
}

}  // namespace

bool is_token(std::string_view text) {
  const auto of_token = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           (c != 0 && std::string_view("!#$%&'*+-.^_`|~").find(char(c)) != std::string_view::npos);
  };
  return !text.empty() && std::ranges::all_of(text, of_token);
}

void read_headers(const std::vector<HeaderLine>& lines, HttpRequest& request) {
  for (const auto& [name, value] : lines) {
    if (!is_token(name)) refuse("the name of a header is no token");
    if (has_control(value)) refuse("a header has a control character");
    const std::string key = small(std::string(name));
    const auto [at, first] = request.headers.emplace(key, trimmed(value));
    if (first) continue;
    if (!kLists.contains(key)) refuse("the header '" + key.substr(0, 100) + "' stands twice");
    at->second.append(", ").append(trimmed(value));
  }
}

size_t bytes_on_wire(size_t request_line, const std::vector<HeaderLine>& lines) {
  size_t bytes = request_line + 4;  // two line ends: of the request line and of the headers
  for (const auto& [name, value] : lines) {
    const auto begin = reinterpret_cast<uintptr_t>(name.data() + name.size());
    const auto end = reinterpret_cast<uintptr_t>(value.data());
    if (!value.data() || end <= begin || end - begin > 65536) return 0;
    if (!only_a_colon(name.data() + name.size(), end - begin)) return 0;
    bytes += name.size() + (end - begin) + value.size() + 2;
  }
  return bytes;
}

void read_head(MHD_Connection* connection, std::string_view method, size_t target,
               std::string_view version, HttpRequest& request) {
  std::vector<HeaderLine> lines;
  MHD_get_connection_values_n(connection, MHD_HEADER_KIND, add_header, &lines);
#if MHD_VERSION < 0x01000000  // see MHD_OPTION_CLIENT_DISCIPLINE_LVL
  const auto* size = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  const size_t line = method.size() + 1 + target + 1 + version.size();
  if (!size || size->header_size != bytes_on_wire(line, lines))
    refuse("a line of the header is folded, has a zero in it, or does not end in CR LF");
#endif
  read_headers(lines, request);
  lines.clear();
  MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, add_header, &lines);
  for (const auto& [name, value] : lines)
    if (!request.query.emplace(name, value).second)
      refuse("'" + std::string(name.substr(0, 100)) + "' stands twice in the query");
}

uint64_t body_bytes(const HttpRequest& request, uint64_t most) {
  const bool sized = request.headers.contains("content-length");
  if (request.headers.contains("transfer-encoding")) {
    if (sized) refuse("Content-Length and Transfer-Encoding: send one of them");
    throw Refusal(411, "invalid_request_error", "a body needs a Content-Length");
  }
  if (!sized) return 0;
  const std::string length = request.header("content-length");
  const char* const end = length.data() + length.size();
  uint64_t bytes = 0;
  const auto [rest, error] = std::from_chars(length.data(), end, bytes);
  if (error == std::errc::invalid_argument || rest != end) refuse("Content-Length is no number");
  if (error != std::errc() || bytes > most)
    throw Refusal(413, "invalid_request_error",
                  "the body has " + length.substr(0, 20) + " bytes; a request has " +
                      std::to_string(most) + " at most");
  return bytes;
}

}  // namespace tessera::server
