#include "media/exif.h"

#include <cstdint>

#include "base/utf8.h"

namespace tessera::media {
namespace {

constexpr size_t kMostUnits = 32000;
constexpr uint16_t kExifPart = 0x8769, kUserComment = 0x9286, kLong = 4, kUndefined = 7;

void append(std::string& out, uint32_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out += static_cast<char>(value >> shift & 0xff);
}

// A directory of one entry, and none behind it.
void append_directory(std::string& out, uint16_t tag, uint16_t type, uint32_t count,
                      uint32_t value) {
  append(out, 1, 2);
  append(out, tag, 2);
  append(out, type, 2);
  append(out, count, 4);
  append(out, value, 4);
  append(out, 0, 4);
}

}  // namespace

std::string exif_comment(const std::string& text) {
  std::string comment("UNICODE\0", 8);
  for (const char16_t unit : base::utf16(text).substr(0, kMostUnits)) append(comment, unit, 2);
  std::string out("MM\0*\0\0\0\x08", 8);
  append_directory(out, kExifPart, kLong, 1, 26);
  append_directory(out, kUserComment, kUndefined, static_cast<uint32_t>(comment.size()), 44);
  return out + comment;
}

}  // namespace tessera::media
