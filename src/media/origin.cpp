#include "media/origin.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "media/exif.h"

namespace tessera::media {
namespace {

constexpr std::string_view kName = "Tessera ";
constexpr int kMostParts = 64;                       // maximum number of parts to inspect
constexpr int64_t kLargestPart = int64_t{64} << 20;  // maximum bytes of a part to read

std::string piece(const base::InputFile& file, int64_t at, int64_t most) {
  const int64_t size = std::max<int64_t>(std::min(file.size() - at, most), 0);
  std::string bytes(static_cast<size_t>(size), '\0');
  if (size > 0) file.read(at, bytes.data(), size);
  return bytes;
}

int64_t big_endian(std::string_view bytes) {
  int64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}
int64_t little_endian(std::string bytes) {
  std::reverse(bytes.begin(), bytes.end());
  return big_endian(bytes);
}

// Text chunks precede the pixels; the program's name is in an early chunk.
bool png_names_us(const base::InputFile& file) {
  int64_t at = 8;
  for (int i = 0; i < kMostParts && at + 8 <= file.size(); ++i) {
    const std::string head = piece(file, at, 8 + 9 + int64_t(kName.size()));
    const int64_t size = big_endian(head.substr(0, 4));
    if (head.substr(4) == "tEXtSoftware" + std::string(1, '\0') + std::string(kName)) return true;
    if (head.substr(4, 4) == "IDAT") break;
    at += 12 + size;
  }
  return false;
}

bool jpeg_names_us(const base::InputFile& file) {
  int64_t at = 2;
  for (int i = 0; i < kMostParts && at + 4 <= file.size(); ++i) {
    const std::string head = piece(file, at, 10);
    const int64_t size = big_endian(head.substr(2, 2));
    if (head[0] != '\xff' || head[1] == '\xda' || size < 2) break;  // start of the pixels
    if (head[1] == '\xe1' && head.substr(4) == std::string("Exif\0\0", 6))
      return exif_software(piece(file, at + 10, size - 8)).starts_with(kName);
    at += 2 + size;
  }
  return false;
}

bool webp_names_us(const base::InputFile& file) {
  int64_t at = 12;
  for (int i = 0; i < kMostParts && at + 8 <= file.size(); ++i) {
    const std::string head = piece(file, at, 8);
    const int64_t size = little_endian(head.substr(4));
    if (head.starts_with("EXIF"))
      return exif_software(piece(file, at + 8, std::min(size, int64_t{1} << 16)))
          .starts_with(kName);
    at += 8 + size + size % 2;
  }
  return false;
}

}  // namespace

bool is_own_image(const base::InputFile& file) {
  const std::string begin = piece(file, 0, 12);
  if (begin.starts_with("\x89PNG\r\n\x1a\n")) return png_names_us(file);
  if (begin.starts_with("\xff\xd8\xff")) return jpeg_names_us(file);
  return begin.starts_with("RIFF") && begin.ends_with("WEBP") && webp_names_us(file);
}

bool is_own_video(const base::InputFile& file) {
  if (piece(file, 4, 4) != "ftyp") return false;
  int64_t at = 0;
  for (int i = 0; i < kMostParts && at + 8 <= file.size(); ++i) {
    const std::string head = piece(file, at, 16), kind = head.substr(4, 4);
    const int64_t narrow = big_endian(head.substr(0, 4));
    const int64_t size = narrow == 1 ? big_endian(head.substr(8)) : narrow;
    if (size < 8 || size > file.size() - at) break;
    if (kind == "moov" && size <= kLargestPart) {
      const std::string moov = piece(file, at, size);
      const size_t comment = moov.rfind(
          "\xa9"
          "cmt");
      const size_t data = comment == std::string::npos ? comment : moov.find("data", comment);
      if (data == std::string::npos || data < 4) return false;
      const auto length = static_cast<size_t>(big_endian(moov.substr(data - 4, 4)));
      const std::string_view text = std::string_view(moov).substr(std::min(data + 12, moov.size()),
                                                                  length < 16 ? 0 : length - 16);
      return text.starts_with(kName) || text.find(", Version: Tessera ") != text.npos;
    }
    at += size;
  }
  return false;
}

}  // namespace tessera::media
