#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// Parts of a tokenizer.json, without added tokens. Throws Error(model) naming `where` and the
/// unknown kind.
TokenizerParts parts_of_json(const base::Json& json, const std::string& where);
/// Same for T5. transformers reads only vocabulary, character map and added tokens of the file,
/// with its own word splitting and a mark before each word.
TokenizerParts parts_of_t5_json(base::Json json, const std::string& where);
/// Adds the "added_tokens" of a tokenizer.json, each text once. Throws Error(model) for tokens
/// without text or id.
void read_added_tokens(const base::Json& json, const std::string& where, TokenizerParts& parts);
/// Adds a declared token, unless a token with the same text exists. As in the tokenizers library,
/// the token gets the vocabulary's id of its text, else the next id after all. Ids free in the
/// vocabulary may be declared; with `keeps_gaps` also ids after the vocabulary.
void add_declared(AddedToken token, TokenizerParts& parts, bool keeps_gaps);
/// Id of a text in the vocabulary, including T5's extra ids.
std::optional<int32_t> vocabulary_id(const TokenizerParts& parts, const std::string& text);
/// Parses an added token of tokenizer.json or tokenizer_config.json.
AddedToken added_token_of(const base::Json& json, int32_t id, const std::string& where);
/// T5 from a spiece.model. A model with byte pieces behaves like the SentencePiece library (sets
/// `sentencepiece`), others like the tokenizers library.
TokenizerParts parts_of_spiece(const std::string& path, bool& sentencepiece);
/// CLIP from vocab.json and merges.txt.
TokenizerParts parts_of_clip(const std::string& vocabulary, const std::string& merges);
/// BERT from vocab.txt; `config` is the tokenizer_config.json.
TokenizerParts parts_of_bert(const std::string& path, const base::Json& config,
                             const std::string& config_path);

}  // namespace tessera::tokenizer
