#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/seeded_hash.h"
#include "tokenizer/model.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/prefix_table.h"

namespace tessera::tokenizer {

/// A token that is matched in the text before splitting.
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool left_strip = false, right_strip = false;  ///< also takes adjacent white space
  bool single_word = false;  ///< only between characters that are not part of a word
  bool normalized = false;   ///< matched in the normalised text
  bool special = false;      ///< not part of an answer's text
};

/// Added tokens in order of insertion, each text once.
class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::initializer_list<AddedToken> tokens) {
    for (const AddedToken& token : tokens) add(token);
  }
  /// Adds a token unless a token with the same text exists.
  void add(AddedToken token) {
    if (!at_.emplace(token.text, tokens_.size()).second) return;
    by_id_.emplace(token.id, tokens_.size());
    tokens_.push_back(std::move(token));
  }
  /// True if a token has this id.
  bool has_id(int32_t id) const { return by_id_.contains(id); }
  /// Largest id; -1: no tokens.
  int32_t last_id() const { return by_id_.empty() ? -1 : by_id_.rbegin()->first; }
  /// Token of this text; null: none.
  const AddedToken* find(std::string_view text) const {
    const auto it = at_.find(text);
    return it == at_.end() ? nullptr : &tokens_[it->second];
  }
  /// First token of this id; null: none.
  const AddedToken* of(int32_t id) const {
    const auto it = by_id_.find(id);
    return it == by_id_.end() ? nullptr : &tokens_[it->second];
  }
  const AddedToken& operator[](size_t i) const { return tokens_[i]; }
  size_t size() const { return tokens_.size(); }
  auto begin() const { return tokens_.begin(); }
  auto end() const { return tokens_.end(); }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t, base::SeededHash, std::equal_to<>> at_;
  std::map<int32_t, size_t> by_id_;
};

/// Tokens of fixed length, for text encoders.
struct Encoded {
  std::vector<int32_t> ids;   ///< text, then padding
  std::vector<int32_t> mask;  ///< ones for text, zeros for padding
  int64_t cut = 0;            ///< number of tokens cut from the text
};

/// Components of a tokenizer.
struct TokenizerParts {
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::shared_ptr<const Model> model;
  int32_t extra_ids = 0;  ///< T5's <extra_id_N> after the file's vocabulary, last N first
  std::vector<int32_t> before, after;  ///< ids around every text ([CLS], </s>, ...)
  std::optional<int32_t> padding;
  int64_t longest = 0;  ///< maximum tokens of the model (model_max_length); 0: unknown
};

/// Encodes text to token ids like the tokenizers library. Const and thread-safe.
class Tokenizer {
 public:
  /// Throws Error(model) naming `where` for added tokens without text.
  Tokenizer(TokenizerParts parts, const std::string& where);

  /// All tokens of a text, including surrounding special tokens. Invalid UTF-8 counts as U+FFFD.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Exactly `length` tokens, cut or padded. Throws Error(usage) if even the special tokens do not
  /// fit, Error(model) without a padding token.
  Encoded encode_padded(std::string_view text, int64_t length) const;

  /// Id of a token with this text, if any.
  std::optional<int32_t> id_of(std::string_view token) const;
  /// Token of an id in the file's spelling; "": none.
  std::string text_of(int32_t id) const;
  /// Largest id plus one.
  int64_t vocabulary() const;
  const AddedTokens& added() const { return parts_.added; }
  /// Maximum tokens of the model; 0: unknown.
  int64_t longest() const { return parts_.longest; }

 private:
  template <class F>
  void around(std::string_view text, const PrefixTable& tokens, F&& visit_text,
              std::vector<int32_t>& ids) const;
  std::vector<int32_t> body(std::string_view text) const;

  TokenizerParts parts_;
  PrefixTable raw_, normalized_;  // values are indices into parts_.added
  std::string where_;
};

}  // namespace tessera::tokenizer
