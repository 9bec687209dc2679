#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// Contents of a SentencePiece model file (spiece.model, a protocol buffer).
struct SpieceModel {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;  ///< by id
  int model_type = 1;         ///< 1 unigram, 2 BPE, 3 words, 4 characters
  bool byte_fallback = false, treat_whitespace_as_suffix = false;
  std::string charsmap;  ///< see Charsmap
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Parses untrusted bytes. Throws Error(model) naming `where` and the problem: lengths beyond the
/// file, pieces that are empty, repeated or not UTF-8, invalid scores, or no pieces.
SpieceModel parse_spiece(std::string_view bytes, const std::string& where);

}  // namespace tessera::tokenizer
