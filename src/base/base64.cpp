#include "base/base64.h"

#include <cstdint>

#include "base/fail.h"

namespace tessera::base {

std::string from_base64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t length = text.size();
  for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
  require(length % 4 == 0 && text.size() % 4 != 1, ErrorCode::model,
          "{}: base64 of {} characters; expected a multiple of 4", where, length);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const size_t digit = kDigits.find(c);
    require(digit != kDigits.npos, ErrorCode::model, "{}: base64 with a character of code {}",
            where, int{static_cast<unsigned char>(c)});
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace tessera::base
