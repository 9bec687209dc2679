#include "media/exif.h"

#include <cstdint>
#include <vector>

#include "base/utf8.h"

namespace tessera::media {
namespace {

constexpr size_t kMostUnits = 32000, kMostSoftware = 64;
constexpr size_t kDirectory = 8, kEntry = 12;
constexpr uint16_t kSoftware = 0x0131, kExifPart = 0x8769, kUserComment = 0x9286;
constexpr uint16_t kAscii = 2, kLong = 4, kUndefined = 7;
constexpr std::string_view kHeader("MM\0*\0\0\0\x08", 8);

void append(std::string& out, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out += static_cast<char>(value >> shift & 0xff);
}

struct Entry {
  uint16_t tag, type;
  size_t count, value;
};

// Appends entries sorted by tag, without a next directory.
void append_directory(std::string& out, const std::vector<Entry>& entries) {
  append(out, entries.size(), 2);
  for (const Entry& entry : entries) {
    append(out, entry.tag, 2);
    append(out, entry.type, 2);
    append(out, entry.count, 4);
    append(out, entry.value, 4);
  }
  append(out, 0, 4);
}

size_t size_of_directory(size_t entries) { return 2 + kEntry * entries + 4; }

size_t number_at(std::string_view bytes, size_t at, size_t size) {
  size_t number = 0;
  for (size_t i = at; i < at + size && i < bytes.size(); ++i)
    number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

std::string exif_data(const std::map<std::string, std::string>& text) {
  const auto software = text.find("Software"), parameters = text.find("parameters");
  std::string name, comment;
  if (software != text.end()) name = software->second.substr(0, kMostSoftware - 1) + '\0';
  if (!name.empty() && name.size() < 5) name.resize(5);  // shorter values are stored inline
  if (parameters != text.end()) {
    comment = std::string("UNICODE\0", 8);
    for (const char16_t unit : base::utf16(parameters->second).substr(0, kMostUnits))
      append(comment, unit, 2);
  }
  if (name.empty() && comment.empty()) return "";
  const size_t entries = size_t{!name.empty()} + size_t{!comment.empty()};
  const size_t behind = kDirectory + size_of_directory(entries);
  std::vector<Entry> first;
  if (!name.empty()) first.push_back({kSoftware, kAscii, name.size(), behind});
  const size_t part = behind + name.size() + name.size() % 2;
  if (!comment.empty()) first.push_back({kExifPart, kLong, 1, part});
  std::string out(kHeader);
  append_directory(out, first);
  out += name;
  out.resize(part, '\0');
  if (comment.empty()) return out;
  append_directory(out, {{kUserComment, kUndefined, comment.size(), part + size_of_directory(1)}});
  return out + comment;
}

std::string exif_software(std::string_view exif) {
  if (!exif.starts_with(kHeader)) return "";
  const size_t entries = number_at(exif, kDirectory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = kDirectory + 2 + kEntry * i;
    if (at + kEntry > exif.size()) break;
    if (number_at(exif, at, 2) != kSoftware || number_at(exif, at + 2, 2) != kAscii) continue;
    const size_t count = number_at(exif, at + 4, 4), value = number_at(exif, at + 8, 4);
    if (count <= 4 || count > kMostSoftware || value > exif.size()) break;
    const std::string_view name = exif.substr(value, count);
    return std::string(name.substr(0, name.find('\0')));
  }
  return "";
}

int exif_orientation(std::string_view exif) {
  constexpr uint16_t kOrientation = 0x0112, kShort = 3;
  const bool little = exif.starts_with(std::string_view("II*\0", 4));
  if (!little && !exif.starts_with(std::string_view("MM\0*", 4))) return 1;
  const auto read = [&](size_t at, size_t size) {
    size_t number = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t from = little ? at + size - 1 - i : at + i;
      number = number << 8 | (from < exif.size() ? static_cast<unsigned char>(exif[from]) : 0);
    }
    return number;
  };
  const size_t directory = read(4, 4);
  if (directory > exif.size()) return 1;
  const size_t entries = read(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + kEntry * i;
    if (at + kEntry > exif.size()) break;
    if (read(at, 2) != kOrientation || read(at + 2, 2) != kShort) continue;
    const size_t value = read(at + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace tessera::media
