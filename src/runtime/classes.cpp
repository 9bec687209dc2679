#include "runtime/classes.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"

namespace tessera::runtime {
namespace {

// The known name with the fewest differing characters in order, for "did you mean".
std::string nearest(const std::string& label, const std::vector<std::string>& names) {
  std::string best;
  size_t least = label.size() / 2 + 2;
  for (const std::string& name : names) {
    std::vector<size_t> row(name.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= label.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 1; j <= name.size(); ++j) {
        const size_t change = diagonal + (label[i - 1] == name[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < least) least = row.back(), best = name;
  }
  return best;
}

}  // namespace

std::vector<int> class_numbers(const std::vector<std::string>& labels,
                               const std::vector<std::string>& names, int64_t count) {
  std::vector<int> numbers;
  for (const std::string& text : labels) {
    const auto it = std::find(names.begin(), names.end(), text);
    if (it != names.end()) {
      numbers.push_back(static_cast<int>(it - names.begin()));
      continue;
    }
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number =
        error == std::errc() && end == text.data() + text.size() && !text.empty();
    if (!is_number && !names.empty()) {
      const std::string near = text.size() <= 100 ? nearest(text, names) : "";
      fail(ErrorCode::usage, "`classes` '{}': no such class{}; an inspection lists all {}",
           text.substr(0, 100), near.empty() ? "" : fmt::format("; did you mean '{}'", near),
           names.size());
    }
    require(is_number && number >= 0 && number < count, ErrorCode::usage,
            "`classes` '{}': no such class; this model has classes 0 to {}", text.substr(0, 100),
            count - 1);
    numbers.push_back(number);
  }
  require(!numbers.empty(), ErrorCode::usage, "no class was given");
  return numbers;
}

}  // namespace tessera::runtime
