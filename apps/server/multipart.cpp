#include "server/multipart.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "server/header_values.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

constexpr size_t kMostName = 100;

[[noreturn]] void refuse(const std::string& message) {
  throw Refusal(400, "invalid_request_error", "multipart/form-data: " + message);
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Splits "form-data; name=\"x\"" into the word before the first ';' and named parameters.
struct HeaderValue {
  std::string word;
  std::map<std::string, std::string> parameters;
};

// Reads a token, or quoted text with backslash escapes; advances `rest`.
std::string take_value(std::string_view& rest) {
  std::string value;
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.find(';'), rest.size());
    value = trimmed(rest.substr(0, end));
    rest.remove_prefix(end);
    return value;
  }
  size_t at = 1;
  for (; at < rest.size() && rest[at] != '"'; ++at) {
    if (rest[at] == '\\' && at + 1 < rest.size() && (rest[at + 1] == '"' || rest[at + 1] == '\\'))
      ++at;
    value += rest[at];
  }
  if (at >= rest.size()) refuse("a text in quotes has no end");
  rest = trimmed(rest.substr(at + 1));
  return value;
}

HeaderValue read_value(std::string_view text) {
  HeaderValue read;
  const size_t end = std::min(text.find(';'), text.size());
  read.word = small(std::string(trimmed(text.substr(0, end))));
  std::string_view rest = text.substr(end);
  while (!rest.empty()) {
    if (rest.front() != ';') refuse("a header has something behind a text in quotes");
    rest = trimmed(rest.substr(1));
    if (rest.empty()) break;
    const size_t equal = rest.find('=');
    if (equal == std::string_view::npos) refuse("a header has a word without a value");
    const std::string name = small(std::string(trimmed(rest.substr(0, equal))));
    rest = trimmed(rest.substr(equal + 1));
    if (!read.parameters.emplace(name, take_value(rest)).second)
      refuse("'" + name.substr(0, kMostName) + "' stands twice in a header");
  }
  return read;
}

std::string boundary_of(const std::string& content_type) {
  const HeaderValue type = read_value(content_type);
  const auto it = type.parameters.find("boundary");
  if (it == type.parameters.end()) refuse("the Content-Type names no boundary");
  const std::string& boundary = it->second;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("'()+_,-./:=? ").find(char(c)) != std::string_view::npos;
  };
  if (boundary.empty() || boundary.size() > 70 || boundary.ends_with(' ') ||
      !std::ranges::all_of(boundary, allowed))
    refuse("the boundary is none: expected 1 to 70 letters, digits and '()+_,-./:=?");
  return boundary;
}

// Headers of a part by name.
std::map<std::string, std::string> read_lines(std::string_view head, const FormLimits& limits) {
  std::map<std::string, std::string> lines;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos || line.front() == ' ' ||
        line.front() == '\t')
      refuse("a part has a header without a name");
    if (std::ranges::any_of(line, [](unsigned char c) { return c < 0x20 && c != '\t'; }))
      refuse("a part has a header with a control character");
    const std::string name = small(std::string(trimmed(line.substr(0, colon))));
    if (!lines.emplace(name, trimmed(line.substr(colon + 1))).second)
      refuse("a part has the header '" + name.substr(0, kMostName) + "' twice");
    if (lines.size() > limits.lines) refuse("a part has too many headers");
  }
  return lines;
}

FormPart read_head(std::string_view head, const FormLimits& limits) {
  const auto lines = read_lines(head, limits);
  const auto value_of = [&](const char* name) {
    const auto it = lines.find(name);
    return it == lines.end() ? std::string() : it->second;
  };
  const HeaderValue disposition = read_value(value_of("content-disposition"));
  if (disposition.word != "form-data") refuse("a part has no Content-Disposition: form-data");
  const auto name = disposition.parameters.find("name");
  if (name == disposition.parameters.end() || name->second.empty() ||
      name->second.size() > kMostName)
    refuse("a part has no name of 1 to " + std::to_string(kMostName) + " bytes");
  const std::string label = "the part '" + name->second + "' ";
  if (small(value_of("content-type")).starts_with("multipart/"))
    refuse(label + "is a form of its own");
  const std::string encoding = small(value_of("content-transfer-encoding"));
  if (!encoding.empty() && encoding != "binary" && encoding != "8bit" && encoding != "7bit")
    refuse(label + "is encoded; send its bytes as they are");
  return {name->second, disposition.parameters.contains("filename"), {}};
}

}  // namespace

std::vector<FormPart> parse_form(std::string_view body, const std::string& content_type,
                                 const FormLimits& limits) {
  const std::string line = "--" + boundary_of(content_type), behind = "\r\n" + line;
  if (!body.starts_with(line)) refuse("the body does not begin with the boundary");
  body.remove_prefix(line.size());
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) refuse("a boundary is followed by something else than a line");
    body.remove_prefix(2);
    const size_t head = body.substr(0, limits.head + 4).find("\r\n\r\n");
    if (head == std::string_view::npos)
      refuse("the headers of a part have no end within " + std::to_string(limits.head) + " bytes");
    FormPart part = read_head(body.substr(0, head), limits);
    body.remove_prefix(head + 4);
    const size_t end = body.find(behind);
    if (end == std::string_view::npos) refuse("the last part has no end");
    part.content = body.substr(0, end);
    body.remove_prefix(end + behind.size());
    if (parts.size() == limits.parts)
      refuse("more than " + std::to_string(limits.parts) + " parts");
    parts.push_back(std::move(part));
  }
  if (body != "--" && body != "--\r\n") refuse("something follows the last boundary");
  return parts;
}

}  // namespace tessera::server
