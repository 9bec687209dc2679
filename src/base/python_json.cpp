#include "base/python_json.h"

#include <array>
#include <utility>

#include "base/stop.h"

namespace tessera::base {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kWords = {
    {{"Infinity", "1.7976931348623157e308"}, {"NaN", "null"}}};

}  // namespace

bool has_python_numbers(std::string_view text) {
  for (const auto& [word, plain] : kWords)
    if (text.find(word) != std::string_view::npos) return true;
  return false;
}

std::string without_python_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    check_stop();
    std::string_view from = text.substr(at, 1), to = from;
    if (in_string && text[at] == '\\') {
      from = to = text.substr(at, 2);
    } else if (text[at] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const auto& [word, plain] : kWords)
        if (text.substr(at).starts_with(word)) from = word, to = plain;
    }
    out += to;
    at += from.size();
  }
  return out;
}

}  // namespace tessera::base
