#include "base/json_text.h"

#include <algorithm>

#include "base/stop.h"
#include "base/utf8.h"
#include "tessera/encodings.h"

namespace tessera {

std::string json_quoted(std::string_view text) {
  return base::Json(text).dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

bool is_utf8(std::string_view text) { return base::valid_utf8(text) == text; }

namespace base {
namespace {

constexpr size_t kLine = 320;  // maximal bytes of an object on a single line

std::string scalar(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool plain(const Json& value) {
  return value.is_primitive() ||
         (value.is_array() &&
          std::ranges::all_of(value, [](const Json& item) { return item.is_primitive(); }));
}

std::string on_one_line(const Json& value) {
  if (value.is_primitive()) return scalar(value);
  std::string text = value.is_array() ? "[" : "{";
  for (auto it = value.begin(); it != value.end(); ++it) {
    check_stop();
    if (it != value.begin()) text += ", ";
    if (value.is_object()) text += scalar(it.key()) + ": ";
    text += on_one_line(*it);
  }
  return text + (value.is_array() ? "]" : "}");
}

void write(const Json& value, size_t depth, std::string& out) {
  if (plain(value) || value.empty()) {
    out += on_one_line(value);
    return;
  }
  const std::string inner(depth + 2, ' ');
  out += value.is_array() ? "[" : "{";
  for (auto it = value.begin(); it != value.end(); ++it) {
    out += (it == value.begin() ? "\n" : ",\n") + inner;
    if (value.is_object()) out += scalar(it.key()) + ": ";
    const bool small = value.is_array() && it->is_object() && std::ranges::all_of(*it, plain);
    const std::string line = small ? on_one_line(*it) : "";
    if (small && line.size() <= kLine)
      out += line;
    else
      write(*it, depth + 2, out);
  }
  out += "\n" + std::string(depth, ' ') + (value.is_array() ? "]" : "}");
}

}  // namespace

std::string json_text(const Json& json) {
  std::string out;
  write(json, 0, out);
  return out;
}

}  // namespace base
}  // namespace tessera
