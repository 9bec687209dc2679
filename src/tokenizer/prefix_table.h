#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

/// Finds all texts of a set at each position of another text: a scan from the end with an automaton
/// of the reversed texts (Aho and Corasick 1975), in linear time.
class PrefixTable {
 public:
  using Texts = std::vector<std::pair<std::string, int32_t>>;
  /// State of the automaton: determines the texts that begin at a position.
  using Place = int32_t;

  PrefixTable() = default;
  /// Texts and their values; empty texts are skipped, and the first of equal texts counts. Throws
  /// Error(model) naming `where` and a text longer than any token, or for too many texts.
  PrefixTable(Texts texts, const std::string& where);

  /// For each byte of `text`, the state of the texts that begin there.
  std::vector<Place> places(std::string_view text) const;
  /// Calls visit(bytes, value) for each text that begins at a position, the longest first.
  template <class F>
  void each(Place place, F&& visit) const {
    for (Place at = longest_[size_t(place)]; at != kNone; at = longest_[size_t(link_[size_t(at)])])
      visit(bytes_[size_t(at)], value_[size_t(at)]);
  }
  /// Bytes and value of the longest text; 0 bytes: none.
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

  // Children of node i are begins_[i] to begins_[i + 1], sorted by byte.
  std::vector<Place> begins_;
  std::vector<unsigned char> byte_;
  std::vector<Place> link_;  // node of the longest proper suffix
  // Nearest node along the links, including the node itself, that is a text.
  std::vector<Place> longest_{kNone};
  std::vector<uint16_t> bytes_;
  std::vector<int32_t> value_;
  std::array<Place, 256> first_{};  // children of the root
};

}  // namespace tessera::tokenizer
