#include "base/utf8.h"

namespace tessera::base {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// Returns the code point at `at` and moves `at` behind; an invalid byte counts as a single
// character.
char32_t next(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  const size_t begin = at++;
  if (first < 0x80) return first;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || begin + length > text.size()) return kReplacement;
  char32_t point = first & (0x7fu >> length);
  for (size_t i = begin + 1; i < begin + length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80) return kReplacement;
    point = point << 6 | (byte(i) & 0x3fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // a shorter form is required below
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  if (point < kLeast[length] || point > 0x10ffff || surrogate) return kReplacement;
  at = begin + length;
  return point;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next(text, at);
    const bool replaced = point == kReplacement && at == begin + 1;
    out += replaced ? std::string_view("\xef\xbf\xbd") : text.substr(begin, at - begin);
  }
  return out;
}

std::u16string utf16(std::string_view text) {
  std::u16string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next(text, at);
    if (point < 0x10000) {
      out += static_cast<char16_t>(point);
    } else {
      out += static_cast<char16_t>(0xd800 + ((point - 0x10000) >> 10));
      out += static_cast<char16_t>(0xdc00 + ((point - 0x10000) & 0x3ff));
    }
  }
  return out;
}

}  // namespace tessera::base
