#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// A byte-pair encoding from a tokenizer.json that encodes every text and decodes every sequence of
/// ids to bytes: byte-level (GPT-2, Radford et al. 2019), or characters with byte fallback (Gemma).
class ByteLevelBpe {
 public:
  /// Throws Error(model) naming `where` and the malformed or unsupported part, also for a file of
  /// another kind.
  ByteLevelBpe(const base::Json& json, const std::string& where);

  /// Encodes UTF-8 to ids; added tokens are matched literally. Throws Error(usage) for text that is
  /// not UTF-8 or holds a byte missing in the vocabulary.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Same for a text outside a chat, with the file's surrounding tokens (<bos>).
  std::vector<int32_t> encode_alone(std::string_view text) const;
  /// Bytes of a token; empty for special tokens if `skip_special`, and for unknown ids. Sequences
  /// of tokens may end inside a UTF-8 character.
  std::string bytes_of(int32_t id, bool skip_special = true) const;
  /// Id of a token in the file's spelling, including added tokens; -1: none.
  int32_t id_of(const std::string& token) const;
  /// Largest id plus one.
  int64_t size() const { return tokenizer_.vocabulary(); }

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };
  ByteLevelBpe(const base::Json& json, TokenizerParts parts, const std::string& where);

  std::unordered_map<int32_t, Token> tokens_;  // by id; a file may have gaps
  std::vector<int32_t> before_, after_;
  Tokenizer tokenizer_;
};

/// Number of leading bytes of `text` that are whole UTF-8 characters, for streaming.
size_t whole_characters(std::string_view text);
/// Decodes bytes as UTF-8: invalid bytes become U+FFFD; an incomplete last character is left out
/// unless `at_end`: the text has ended.
std::string readable(std::string_view bytes, bool at_end);
/// Appends the same to `out`, and returns the number of bytes read.
size_t append_readable(std::string_view bytes, bool at_end, std::string& out);

}  // namespace tessera::tokenizer
