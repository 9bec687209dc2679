#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

/// Texts in the order of their bytes, to find all those with which another text begins: in time of
/// the longest one, however many there are.
class PrefixTable {
 public:
  using Texts = std::vector<std::pair<std::string, int32_t>>;

  PrefixTable() = default;
  /// Texts and what they stand for; empty ones are left out, of equal ones the first counts. Throws
  /// Error(model) naming `where` and a text that is longer than any token.
  PrefixTable(Texts texts, const std::string& where);

  /// Calls found(bytes, what it stands for) for each text with which `text` begins, the shortest
  /// first.
  template <class F>
  void each(std::string_view text, F&& found) const {
    if (text.empty()) return;
    const auto first = static_cast<unsigned char>(text[0]);
    auto low = texts_.begin() + begins_[first], high = texts_.begin() + begins_[first + 1u];
    for (size_t depth = 0; low != high; ++depth) {
      if (low->first.size() == depth) {  // the shortest of those that are left stands first
        found(depth, low->second);
        if (++low == high) return;
      }
      if (depth == text.size()) return;
      const auto c = static_cast<unsigned char>(text[depth]);
      auto byte = [&](const auto& entry) { return static_cast<unsigned char>(entry.first[depth]); };
      low = std::partition_point(low, high, [&](const auto& entry) { return byte(entry) < c; });
      high = std::partition_point(low, high, [&](const auto& entry) { return byte(entry) <= c; });
    }
  }
  /// What the longest of them stands for, and its bytes; 0 bytes: none.
  std::pair<size_t, int32_t> longest(std::string_view text) const {
    std::pair<size_t, int32_t> best{0, 0};
    each(text, [&](size_t bytes, int32_t value) { best = {bytes, value}; });
    return best;
  }
  bool empty() const { return texts_.empty(); }

 private:
  Texts texts_;
  std::array<std::ptrdiff_t, 257> begins_{};  // of the texts by their first byte
};

}  // namespace tessera::tokenizer
