#include "field_options.h"

#include <charconv>

namespace tessera::cli {

std::vector<double> numbers_of(const std::string& text, const std::string& option) {
  std::vector<double> numbers;
  const char *at = text.data(), *const end = at + text.size();
  for (bool more = true; more; ++at) {
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    at = next;
    more = at < end && *at == ',';
    if (error != std::errc() || (at < end && !more))
      throw Error(ErrorCode::usage,
                  option + ": expected numbers, with commas between, not '" + text + "'");
  }
  return numbers;
}

}  // namespace tessera::cli
