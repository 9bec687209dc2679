#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// The tokenizer of a folder as published: tokenizer.json, else spiece.model (T5), vocab.json and
/// merges.txt (CLIP) or vocab.txt (BERT); with tokenizer_config.json and special_tokens_map.json
/// where they are. Throws Error(model) naming what is missing or malformed.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& folder);

}  // namespace tessera::tokenizer
