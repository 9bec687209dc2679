#pragma once

#include <string>

#include "tokenizer/bpe.h"
#include "tokenizer/prefix_table.h"

namespace tessera::tokenizer {

/// Data of a WordPiece model.
struct WordPieceTables {
  Vocabulary vocabulary;
  std::string unknown = "[UNK]", continuation = "##";
  int64_t longest_word = 100;  ///< characters; longer words are unknown
};

/// Matches the longest token first, from left to right; a word without a complete match becomes a
/// single unknown token (Wu et al. 2016; as in BERT).
class WordPiece : public Model {
 public:
  /// Throws Error(model) naming `where` if the unknown token is missing.
  WordPiece(WordPieceTables tables, const std::string& where);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::string text_of(int32_t id) const override { return by_id_.of(id); }
  int64_t size() const override { return size_; }

 private:
  WordPieceTables tables_;
  TokensById by_id_;
  PrefixTable first_, later_;  // tokens that begin a word; tokens that continue a word
  int32_t unknown_ = 0;
  int64_t size_ = 0;
};

}  // namespace tessera::tokenizer
