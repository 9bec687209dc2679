#include "tessera/field_names.h"

#include <algorithm>
#include <cctype>

#include "tessera/error.h"

namespace tessera {
namespace {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

bool in_field(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

// The field with its opening backtick at `at`; "": no field.
std::string_view field_at(std::string_view text, size_t at) {
  if (at >= text.size() || text[at] != '`') return "";
  const auto begin = text.begin() + static_cast<std::ptrdiff_t>(at) + 1;
  const auto end = std::find_if_not(begin, text.end(), in_field);
  return end == text.end() || *end != '`' ? std::string_view() : std::string_view(begin, end);
}

// Whether the quote at `at` opens or closes quoted text; within a word a quote is an apostrophe.
bool is_quote(std::string_view text, size_t at, bool quoted) {
  if (!quoted && at == 0) return true;
  const size_t beside = quoted ? at + 1 : at - 1;
  return beside >= text.size() || !in_word(text[beside]);
}

}  // namespace

std::string Error::field() const { return field_of(what()); }

std::string field_of(std::string_view message) { return std::string(field_at(message, 0)); }

std::string spell_fields(std::string_view message, const FieldSpelling& spelling) {
  std::string text;
  bool quoted = false;
  for (size_t i = 0; i < message.size(); ++i) {
    if (message[i] == '\'' && is_quote(message, i, quoted)) quoted = !quoted;
    const std::string_view field = quoted ? std::string_view() : field_at(message, i);
    if (field.empty()) {
      text += message[i];
      continue;
    }
    text += spelling(std::string(field));
    i += field.size() + 1;
  }
  return text;
}

std::string plain_fields(std::string_view message) {
  return spell_fields(message, [](const std::string& field) { return field; });
}

}  // namespace tessera
