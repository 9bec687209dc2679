#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/pipeline.h"

namespace tessera::tokenizer {

/// A token that is found in the text before it is cut.
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool left_strip = false, right_strip = false;  ///< takes the white space beside it along
  bool single_word = false;  ///< only between characters that are no part of a word
  bool normalized = false;   ///< looked for in the normalised text
};

/// Tokens of fixed length, as text encoders take them.
struct Encoded {
  std::vector<int32_t> ids;   ///< text, then padding
  std::vector<int32_t> mask;  ///< ones, then zeros over the padding
};

/// What a tokenizer is made of.
struct TokenizerParts {
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::shared_ptr<const Model> model;
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
  /// One more than the largest id.
  int64_t vocabulary() const;
  /// Tokens that the model takes; 0: not said.
  int64_t longest() const { return parts_.longest; }

 private:
  template <class F>
  void around(std::string_view text, const std::vector<AddedToken>& tokens, F&& between,
              std::vector<int32_t>& ids) const;
  std::vector<int32_t> body(std::string_view text) const;

  TokenizerParts parts_;
  std::vector<AddedToken> raw_, normalized_;  // the longest first
  std::string where_;
};

}  // namespace tessera::tokenizer
