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

/// Tokens of a vocabulary by id. The vocabulary must outlive this object, and may be moved.
class TokensById {
 public:
  TokensById() = default;
  explicit TokensById(const Vocabulary& vocabulary);
  TokensById(TokensById&&) = default;  // a copy would point into the original's vocabulary
  TokensById& operator=(TokensById&&) = default;
  /// Token of an id; "": none.
  std::string of(int32_t id) const;

 private:
  std::vector<std::pair<int32_t, const std::string*>> tokens_;  // sorted by id
};

/// A byte-pair encoding (Sennrich et al. 2016).
struct BpeTables {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of priority
  std::string word_end;  ///< appended to the last character of a piece ("</w>")
  std::string unknown;   ///< token for unknown characters; "": such text is refused
  bool fuse_unknown = false, byte_fallback = false;
  bool whole_first = false;  ///< a piece equal to a token is not split
};

/// Merges neighbouring tokens of a piece, the earliest merge first, until none applies.
class Bpe : public Model {
 public:
  /// Throws Error(model) naming `where` and a merge or token missing in the vocabulary.
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
  std::unordered_map<uint64_t, Merge, base::SeededHash> merges_;  // key: both ids
  std::optional<int32_t> unknown_;
  int64_t size_ = 0;
};

/// Spelling of a piece in byte-level encodings: a printable character for each byte (GPT-2, Radford
/// et al. 2019).
std::string bytes_as_characters(std::string_view piece);

}  // namespace tessera::tokenizer
