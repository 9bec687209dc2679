#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// The precompiled character map of a SentencePiece model: a double-array trie (Darts-clone) whose
/// values point at replacements. NFKC and more, as the model was trained with.
class Charsmap {
 public:
  /// `blob` empty: a map that changes nothing. Throws Error(model) naming `where` for one that is
  /// cut short or points outside itself.
  Charsmap(std::string_view blob, const std::string& where);
  bool empty() const { return units_.empty(); }

  /// What a beginning of text becomes, and how long it is.
  struct Match {
    size_t length;
    std::string_view text;
  };
  /// The longest beginning that the map knows.
  std::optional<Match> longest(std::string_view text) const;
  /// The shortest one: what the tokenizers library takes for a whole character.
  std::optional<Match> shortest(std::string_view text) const;

  /// The text as the tokenizers library maps it: grapheme by grapheme.
  std::string apply(std::string_view text) const;

 private:
  std::optional<Match> find(std::string_view text, bool first) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  std::string where_;
};

}  // namespace tessera::tokenizer
