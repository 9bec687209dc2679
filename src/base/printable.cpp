#include "base/printable.h"

namespace tessera::base {

std::string Printable::str() const {
  const std::string_view text = text_;
  constexpr size_t kLongest = 120;
  size_t length = text.size();
  if (length > kLongest) {
    length = kLongest;  // do not cut within a UTF-8 character
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) --length;
  }
  std::string out = "'";
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out + (length < text.size() ? "...'" : "'");
}

}  // namespace tessera::base
