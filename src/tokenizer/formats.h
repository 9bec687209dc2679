#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// The parts that a tokenizer.json describes, without added tokens. Throws Error(model) naming
/// `where` and the kind that is not known.
TokenizerParts parts_of_json(const base::Json& json, const std::string& where);
/// T5 over a spiece.model. A model with byte pieces does all as the SentencePiece library does it
/// (`sentencepiece` says so), others as the tokenizers library.
TokenizerParts parts_of_spiece(const std::string& path, bool& sentencepiece);
/// CLIP over vocab.json and merges.txt.
TokenizerParts parts_of_clip(const std::string& vocabulary, const std::string& merges);
/// BERT over vocab.txt; `config` is its tokenizer_config.json.
TokenizerParts parts_of_bert(const std::string& path, const base::Json& config,
                             const std::string& config_path);

}  // namespace tessera::tokenizer
