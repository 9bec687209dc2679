#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::server {

/// Base 64 with padding (RFC 4648, section 4).
inline std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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

}  // namespace tessera::server
