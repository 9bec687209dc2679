#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/model.h"

namespace tessera::tokenizer {

/// Looks texts up without copying them.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
/// Tokens by their text.
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;
/// The token of an id, "" without one: looks at all of them.
std::string text_of(const Vocabulary& vocabulary, int32_t id);

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
  std::string text_of(int32_t id) const override;
  int64_t size() const override { return size_; }

 private:
  struct Merge {
    int32_t rank, id;
  };
  std::vector<int32_t> characters(std::string_view piece) const;
  const Merge* merge_of(int32_t left, int32_t right) const;

  BpeTables tables_;
  std::string where_;
  std::unordered_map<uint64_t, Merge> merges_;  // by the two ids
  std::optional<int32_t> unknown_;
  int64_t size_ = 0;
};

/// The text in which byte-level encodings write a piece: one printable character a byte (GPT-2,
/// Radford et al. 2019).
std::string bytes_as_characters(std::string_view piece);

}  // namespace tessera::tokenizer
