#include "jinja/text.h"

#include <algorithm>

#include "base/find_text.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::check_length;
using tokenizer::in_lower_case;
using tokenizer::in_title_case;
using tokenizer::in_upper_case;
using tokenizer::is_digit;
using tokenizer::is_letter;
using tokenizer::is_number;
using tokenizer::is_space;
using tokenizer::length_of;
using tokenizer::next_code_point;

namespace {

// Characters stripped from the ends of a text.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view characters) {
    for (size_t at = 0; at < characters.size();)
      members_.push_back(next_code_point(characters, at));
    std::ranges::sort(members_);
  }
  bool holds(std::string_view character) const {
    base::check_stop();
    size_t at = 0;
    const char32_t c = next_code_point(character, at);
    return members_.empty() ? is_blank(c) : std::ranges::binary_search(members_, c);
  }

 private:
  std::vector<char32_t> members_;  // empty: blanks
};

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }

std::string_view last_of(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && !begins_character(text[at])) --at;
  return text.substr(at);
}

std::string backwards(std::string_view text) { return {text.rbegin(), text.rend()}; }

bool line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::vector<std::string> split_at_blanks(std::string_view text, int64_t most, bool from_right) {
  const CharacterSet blanks({});
  std::vector<std::string> parts;
  for (text = trimmed(text, !from_right, from_right); !text.empty();
       text = trimmed(text, !from_right, from_right)) {
    if (static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(text);
      break;
    }
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::string_view character =
          from_right ? last_of(rest) : rest.substr(0, length_of(rest[0]));
      if (blanks.holds(character)) break;
      from_right ? rest.remove_suffix(character.size()) : rest.remove_prefix(character.size());
    }
    const size_t bytes = text.size() - rest.size();
    parts.emplace_back(from_right ? text.substr(rest.size()) : text.substr(0, bytes));
    text = rest;
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

bool is_blank(char32_t c) { return is_space(c) || (c >= 0x1c && c <= 0x1f); }

std::string_view trimmed(std::string_view text, bool left, bool right,
                         std::string_view characters) {
  const CharacterSet ends(characters);
  while (left && !text.empty()) {
    const std::string_view character = text.substr(0, length_of(text[0]));
    if (!ends.holds(character)) break;
    text.remove_prefix(character.size());
  }
  while (right && !text.empty()) {
    const std::string_view character = last_of(text);
    if (!ends.holds(character)) break;
    text.remove_suffix(character.size());
  }
  return text;
}

int64_t character_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(), begins_character);
}

size_t byte_of(std::string_view text, int64_t index) {
  size_t at = 0;
  while (index-- > 0) at += length_of(text[at]);
  return at;
}

std::string every(std::string_view text, int64_t begin, int64_t end, int64_t step) {
  if (step > 0 ? begin >= end : begin <= end) return "";
  size_t at = byte_of(text, begin);
  if (step == 1) return std::string(text.substr(at, byte_of(text.substr(at), end - begin)));
  std::string characters;
  for (int64_t i = begin;;) {
    base::check_stop();
    characters += text.substr(at, length_of(text[at]));
    i += step;
    if (step > 0 ? i >= end : i <= end) return characters;
    if (step > 0) at += byte_of(text.substr(at), step);
    for (int64_t back = step; back < 0; ++back)
      while (!begins_character(text[--at])) {
      }
  }
}

std::vector<std::string> split(std::string_view text, std::string_view by, int64_t most,
                               bool from_right) {
  if (by.empty()) return split_at_blanks(text, most, from_right);
  if (from_right) {
    std::vector<std::string> parts = split(backwards(text), backwards(by), most, false);
    for (std::string& part : parts) std::ranges::reverse(part);
    std::ranges::reverse(parts);
    return parts;
  }
  std::vector<std::string> parts;
  while (static_cast<int64_t>(parts.size()) != most) {
    const size_t at = base::find_text(text, by);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + by.size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string> lines_of(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t most) {
  std::string out;
  size_t at = 0;
  for (int64_t count = 0; count != most; ++count) {
    base::check_stop();
    check_length(out.size());
    if (from.empty()) {  // before every character, and at the end
      out += to;
      if (at >= text.size()) return out;
      const size_t length = length_of(text[at]);
      out += text.substr(at, length);
      at += length;
      continue;
    }
    const size_t hit = base::find_text(text, from, at);
    if (hit == std::string_view::npos) break;
    (out += text.substr(at, hit - at)) += to;
    at = hit + from.size();
  }
  return out += text.substr(at);
}

std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t next = 0; next < text.size();) {
    base::check_stop();
    const std::string_view character = text.substr(next, length_of(text[next]));
    next += character.size();
    out += inside ? in_lower_case(character) : in_title_case(character);
    size_t at = 0;
    inside = is_letter(next_code_point(character, at));
  }
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = length_of(text[0]);
  return in_title_case(text.substr(0, first)) + in_lower_case(text.substr(first));
}

bool all_of_kind(std::string_view text, const std::string& method) {
  if (method == "isupper") return in_upper_case(text) == text && in_lower_case(text) != text;
  if (method == "islower") return in_lower_case(text) == text && in_upper_case(text) != text;
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const char32_t c = next_code_point(text, at);
    const bool fits = method == "isspace"   ? is_blank(c)
                      : method == "isalpha" ? is_letter(c)
                      : method == "isalnum" ? is_letter(c) || is_number(c)
                                            : is_digit(c);
    if (!fits) return false;
  }
  return !text.empty();
}

}  // namespace tessera::jinja
