#include <array>
#include <charconv>
#include <string>

#include "base/fail.h"
#include "base/printable.h"
#include "tessera/input_image.h"

namespace tessera {
namespace {

constexpr int kMostMargin = 16384;  // pixels

}  // namespace

Margins parse_margins(const std::string& text) {
  std::array<int, 4> sides{};
  size_t count = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; count < sides.size(); ++count) {
    const auto [next, error] = std::from_chars(at, end, sides[count]);
    if (error != std::errc() || sides[count] < 0 || sides[count] > kMostMargin) break;
    at = next;
    if (at == end || *at != ',') {
      ++count;
      break;
    }
    ++at;
  }
  require(at == end && (count == 1 || count == 4), ErrorCode::usage,
          "`outpaint` {}: expected pixels of all sides, or of left,top,right,bottom, each 0 to {}",
          base::printable(text), kMostMargin);
  if (count == 1) sides.fill(sides[0]);
  return {sides[0], sides[1], sides[2], sides[3]};
}

}  // namespace tessera
