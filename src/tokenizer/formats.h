#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// The parts that a tokenizer.json describes, without added tokens. Throws Error(model) naming
/// `where` and the kind that is not known.
TokenizerParts parts_of_json(const base::Json& json, const std::string& where);
/// The same for T5, of whose file transformers takes vocabulary, character map and added tokens
/// alone: words of its own, with a mark before each.
TokenizerParts parts_of_t5_json(base::Json json, const std::string& where);
/// Adds the "added_tokens" of a tokenizer.json, each text once. Throws Error(model) for tokens
/// without text or id.
void read_added_tokens(const base::Json& json, const std::string& where, TokenizerParts& parts);
/// Adds a token that a file declares under an id, unless one of its text is there. As in the
/// tokenizers library it gets the id that the vocabulary has for its text, else the next behind
/// all. Where the vocabulary leaves an id free it may be declared; with `keeps_gaps` behind it,
/// too.
void add_declared(AddedToken token, TokenizerParts& parts, bool keeps_gaps);
/// The id that the vocabulary, with T5's extra ids, has for a text.
std::optional<int32_t> vocabulary_id(const TokenizerParts& parts, const std::string& text);
/// An added token as tokenizer.json and tokenizer_config.json write it.
AddedToken added_token_of(const base::Json& json, int32_t id, const std::string& where);
/// T5 over a spiece.model. A model with byte pieces does all as the SentencePiece library does it
/// (`sentencepiece` says so), others as the tokenizers library.
TokenizerParts parts_of_spiece(const std::string& path, bool& sentencepiece);
/// CLIP over vocab.json and merges.txt.
TokenizerParts parts_of_clip(const std::string& vocabulary, const std::string& merges);
/// BERT over vocab.txt; `config` is its tokenizer_config.json.
TokenizerParts parts_of_bert(const std::string& path, const base::Json& config,
                             const std::string& config_path);

}  // namespace tessera::tokenizer
