#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// A byte-pair encoding from a tokenizer.json in which every text has ids, and every sequence of
/// ids has bytes: byte-level (GPT-2, Radford et al. 2019), or of characters with a token for each
/// byte (Gemma).
class ByteLevelBpe {
 public:
  /// Throws Error(model) naming `where` and what is malformed or not supported, also for a file of
  /// another form.
  ByteLevelBpe(const base::Json& json, const std::string& where);

  /// UTF-8 -> ids; added tokens are found in the text as they are. Throws Error(usage) for text
  /// that is not UTF-8 or holds a byte that the vocabulary lacks.
  std::vector<int32_t> encode(std::string_view text) const;
  /// The same for a text outside a chat, between the tokens that the file puts around it (<bos>).
  std::vector<int32_t> encode_alone(std::string_view text) const;
  /// The bytes of one token; special tokens give none when `skip_special`. An id outside the
  /// vocabulary gives none. Sequences of tokens may end inside a UTF-8 character.
  std::string bytes_of(int32_t id, bool skip_special = true) const;
  /// The id of a token as the file spells it, added ones included; -1: there is none.
  int32_t id_of(const std::string& token) const;
  /// One more than the largest id.
  int64_t size() const { return tokenizer_.vocabulary(); }

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };
  ByteLevelBpe(const base::Json& json, TokenizerParts parts, const std::string& where);

  std::unordered_map<int32_t, Token> tokens_;  // by id; a file may leave any of them out
  std::vector<int32_t> before_, after_;
  Tokenizer tokenizer_;
};

/// How many leading bytes of `text` are whole UTF-8 characters: what may be shown of a stream.
size_t whole_characters(std::string_view text);
/// Bytes as UTF-8: what is no character becomes U+FFFD; a character whose rest may still come is
/// left out unless the text has `ended`.
std::string readable(std::string_view bytes, bool ended);
/// Appends the same to `out`, and returns how many bytes were read.
size_t append_readable(std::string_view bytes, bool ended, std::string& out);

}  // namespace tessera::tokenizer
