#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::base {

/// A checksum to test whether two machines hold the same bytes (FNV-1a, 64 bits). Detects mistakes,
/// not forgeries.
class Digest {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) state_ = (state_ ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  /// 16 hexadecimal digits.
  std::string text() const {
    std::string digits(16, '0');
    for (int i = 0; i < 16; ++i) digits[static_cast<size_t>(i)] = kHex[state_ >> (60 - 4 * i) & 15];
    return digits;
  }

 private:
  static constexpr std::string_view kHex = "0123456789abcdef";
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace tessera::base
