#include "base/base64.h"

#include <array>
#include <cstdint>

#include "base/fail.h"
#include "tessera/encodings.h"

namespace tessera {
namespace {
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The digit of a character; -1: not a digit.
constexpr std::array<int, 256> kDigitOf = [] {
  std::array<int, 256> digits{};
  digits.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    digits[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  return digits;
}();
}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](size_t n) {
      return i + n < bytes.size() ? uint32_t{static_cast<unsigned char>(bytes[i + n])} : 0u;
    };
    const uint32_t three = at(0) << 16 | at(1) << 8 | at(2);
    out += kDigits[three >> 18];
    out += kDigits[three >> 12 & 63];
    out += i + 1 < bytes.size() ? kDigits[three >> 6 & 63] : '=';
    out += i + 2 < bytes.size() ? kDigits[three & 63] : '=';
  }
  return out;
}

std::string from_base64(std::string_view text) {
  try {
    return base::from_base64(text, "the text");
  } catch (const Error& e) {
    throw Error(ErrorCode::usage, e.what());
  }
}

namespace base {

std::string from_base64(std::string_view text, const std::string& where) {
  const size_t length = text.size();
  for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
  require(length % 4 == 0 && text.size() % 4 != 1, ErrorCode::model,
          "{}: base64 of {} characters; expected a multiple of 4", where, length);
  std::string bytes;
  bytes.reserve(length / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int digit = kDigitOf[static_cast<unsigned char>(c)];
    require(digit >= 0, ErrorCode::model, "{}: base64 with a character of code {}", where,
            int{static_cast<unsigned char>(c)});
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace base
}  // namespace tessera
