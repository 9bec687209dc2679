#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// Precompiled character map of a SentencePiece model: a double-array trie (Darts-clone) with
/// replacements. Implements the normalisation used in training (NFKC and more).
class Charsmap {
 public:
  /// Empty `blob`: an identity map. Throws Error(model) naming `where` for a truncated map or an
  /// offset out of range.
  Charsmap(std::string_view blob, const std::string& where);
  bool empty() const { return units_.empty(); }

  /// Replacement of a prefix, and the length of the prefix.
  struct Match {
    size_t length;
    std::string_view text;
  };
  /// The longest known prefix.
  std::optional<Match> longest(std::string_view text) const;
  /// The shortest known prefix: the tokenizers library treats this match as a whole character.
  std::optional<Match> shortest(std::string_view text) const;

  /// Maps a text like the tokenizers library: grapheme by grapheme.
  std::string apply(std::string_view text) const;

 private:
  std::optional<Match> find(std::string_view text, bool first) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  std::string where_;
};

}  // namespace tessera::tokenizer
