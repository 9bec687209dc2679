#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"
#include "tokenizer/model.h"

namespace tessera::tokenizer {

/// Tokens by their text.
using Vocabulary = std::unordered_map<std::string, int32_t, base::SeededHash, std::equal_to<>>;

/// The tokens of a vocabulary by their ids. The vocabulary must outlive it, and may be moved.
class TokensById {
 public:
  TokensById() = default;
  explicit TokensById(const Vocabulary& vocabulary);
  TokensById(TokensById&&) = default;  // a copy would point into the first one's vocabulary
  TokensById& operator=(TokensById&&) = default;
  /// The token of an id; "": there is none.
  std::string of(int32_t id) const;

 private:
  std::vector<std::pair<int32_t, const std::string*>> tokens_;  // in the order of the ids
};

/// A byte-pair encoding (Sennrich et al. 2016).
struct BpeTables {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  ///< first come first
  std::string word_end;  ///< appended to the last character of a piece ("</w>")
  std::string unknown;   ///< token of a character that is none; "": such text is refused
  bool fuse_unknown = false, byte_fallback = false;
  bool whole_first = false;  ///< a piece that is a token is not split
};

/// Joins neighbouring tokens of a piece, the earliest merge first, until none applies.
class Bpe : public Model {
 public:
  /// Throws Error(model) naming `where` and a merge or token that the vocabulary lacks.
  Bpe(BpeTables tables, const std::string& where);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::string text_of(int32_t id) const override { return by_id_.of(id); }
  int64_t size() const override { return size_; }

 private:
  struct Merge {
    int32_t rank, id;
  };
  std::vector<int32_t> characters(std::string_view piece) const;
  const Merge* merge_of(int32_t left, int32_t right) const;

  BpeTables tables_;
  std::string where_;
  TokensById by_id_;
  std::unordered_map<uint64_t, Merge, base::SeededHash> merges_;  // by the two ids
  std::optional<int32_t> unknown_;
  int64_t size_ = 0;
};

/// The text in which byte-level encodings write a piece: one printable character a byte (GPT-2,
/// Radford et al. 2019).
std::string bytes_as_characters(std::string_view piece);

}  // namespace tessera::tokenizer
