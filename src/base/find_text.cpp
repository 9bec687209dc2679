#include "base/find_text.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/stop.h"

namespace tessera::base {
namespace {

constexpr size_t kNone = std::string_view::npos;

size_t place_in(std::string_view text, std::string_view part) {
  if (part.size() > text.size()) return kNone;
  if (part.empty()) return 0;
  const void* const match = memmem(text.data(), text.size(), part.data(), part.size());
  if (!match) return kNone;
  return static_cast<size_t>(static_cast<const char*>(match) - text.data());
}

}  // namespace

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  // Searches windows and checks for a stop between them. A window contains every match with a start
  // in its first half.
  const size_t half = std::max(size_t{1} << 20, part.size());
  for (; from <= text.size(); from += half) {
    check_stop();
    const size_t place = place_in(text.substr(from, 2 * half), part);
    if (place != kNone) return from + place;
  }
  return kNone;
}

size_t find_last_text(std::string_view text, std::string_view part) {
  const std::string backwards(text.rbegin(), text.rend());
  const size_t place = find_text(backwards, std::string(part.rbegin(), part.rend()));
  return place == kNone ? kNone : text.size() - place - part.size();
}

}  // namespace tessera::base
