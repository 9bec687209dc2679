#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

/// Texts, to find those that stand at each place of another text: a walk from its end with an
/// automaton of the reversed texts (Aho and Corasick 1975), in linear time.
class PrefixTable {
 public:
  using Texts = std::vector<std::pair<std::string, int32_t>>;
  /// Where the automaton is: says which of the texts begin at a place.
  using Place = int32_t;

  PrefixTable() = default;
  /// Texts and what they stand for; empty ones are left out, of equal ones the first counts. Throws
  /// Error(model) naming `where` and a text that is longer than any token, or for too many of them.
  PrefixTable(Texts texts, const std::string& where);

  /// For each byte of `text`: which of the texts begin there.
  std::vector<Place> places(std::string_view text) const;
  /// Calls found(bytes, what it stands for) for each text that begins at a place, the longest
  /// first.
  template <class F>
  void each(Place place, F&& found) const {
    for (Place at = longest_[size_t(place)]; at != kNone; at = longest_[size_t(link_[size_t(at)])])
      found(bytes_[size_t(at)], value_[size_t(at)]);
  }
  /// What the longest of them stands for, and its bytes; 0 bytes: none.
  std::pair<size_t, int32_t> longest(Place place) const {
    const Place at = longest_[static_cast<size_t>(place)];
    if (at == kNone) return {0, 0};
    return {bytes_[static_cast<size_t>(at)], value_[static_cast<size_t>(at)]};
  }
  bool empty() const { return begins_.size() < 2; }

 private:
  static constexpr Place kNone = -1;
  Place child(Place of, unsigned char byte) const;
  Place next(Place from, unsigned char byte) const;
  void grow(const Texts& texts, const std::string& where);

  // The children of node i are begins_[i] to begins_[i + 1], in the order of their bytes.
  std::vector<Place> begins_;
  std::vector<unsigned char> byte_;
  std::vector<Place> link_;  // the node of the longest proper suffix
  // The nearest node along the links, itself included, that is a text.
  std::vector<Place> longest_{kNone};
  std::vector<uint16_t> bytes_;
  std::vector<int32_t> value_;
  std::array<Place, 256> first_{};  // children of the root
};

}  // namespace tessera::tokenizer
