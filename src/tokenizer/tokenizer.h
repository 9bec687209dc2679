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

/// A token that is found in the text before it is cut.
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool left_strip = false, right_strip = false;  ///< takes the white space beside it along
  bool single_word = false;  ///< only between characters that are no part of a word
  bool normalized = false;   ///< looked for in the normalised text
  bool special = false;      ///< no text of an answer
};

/// Added tokens in the order in which they came, each text once.
class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::initializer_list<AddedToken> tokens) {
    for (const AddedToken& token : tokens) add(token);
  }
  /// Adds a token unless one of its text is there.
  void add(AddedToken token) {
    if (!at_.emplace(token.text, tokens_.size()).second) return;
    by_id_.emplace(token.id, tokens_.size());
    tokens_.push_back(std::move(token));
  }
  /// Whether a token has this id.
  bool has_id(int32_t id) const { return by_id_.contains(id); }
  /// The largest id; -1: there is no token.
  int32_t last_id() const { return by_id_.empty() ? -1 : by_id_.rbegin()->first; }
  /// The token of this text; null: there is none.
  const AddedToken* find(std::string_view text) const {
    const auto found = at_.find(text);
    return found == at_.end() ? nullptr : &tokens_[found->second];
  }
  /// The first token of this id; null: there is none.
  const AddedToken* of(int32_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &tokens_[found->second];
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

/// Tokens of fixed length, as text encoders take them.
struct Encoded {
  std::vector<int32_t> ids;   ///< text, then padding
  std::vector<int32_t> mask;  ///< ones, then zeros over the padding
  int64_t cut = 0;            ///< tokens that the text has beyond them
};

/// What a tokenizer is made of.
struct TokenizerParts {
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::shared_ptr<const Model> model;
  int32_t extra_ids = 0;  ///< T5's <extra_id_N> behind the vocabulary of its file, last N first
  std::vector<int32_t> before, after;  ///< ids around every text ([CLS], </s>, ...)
  std::optional<int32_t> padding;
  int64_t longest = 0;  ///< tokens that the model takes (model_max_length); 0: not said
};

/// Text to token ids, as the tokenizers library does it. Const and thread-safe.
class Tokenizer {
 public:
  /// Throws Error(model) naming `where` for added tokens without text.
  Tokenizer(TokenizerParts parts, const std::string& where);

  /// All tokens of a text, special ones around it included. What is no UTF-8 counts as U+FFFD.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Exactly `length` tokens: the text is cut behind its last tokens that fit, or padded. Throws
  /// Error(usage) if not even the special tokens fit, Error(model) without padding token.
  Encoded encode_padded(std::string_view text, int64_t length) const;

  /// The id of a token, if there is one of this text.
  std::optional<int32_t> id_of(std::string_view token) const;
  /// The token of an id as the file spells it; "": there is none.
  std::string text_of(int32_t id) const;
  /// One more than the largest id.
  int64_t vocabulary() const;
  const AddedTokens& added() const { return parts_.added; }
  /// Tokens that the model takes; 0: not said.
  int64_t longest() const { return parts_.longest; }

 private:
  template <class F>
  void around(std::string_view text, const PrefixTable& tokens, F&& between,
              std::vector<int32_t>& ids) const;
  std::vector<int32_t> body(std::string_view text) const;

  TokenizerParts parts_;
  PrefixTable raw_, normalized_;  // places in parts_.added
  std::string where_;
};

}  // namespace tessera::tokenizer
