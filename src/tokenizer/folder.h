#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tessera::tokenizer {

/// Opens the published tokenizer of a folder: tokenizer.json, else spiece.model (T5), vocab.json
/// and merges.txt (CLIP) or vocab.txt (BERT), with optional tokenizer_config.json and
/// special_tokens_map.json. Throws Error(model) naming the missing or malformed part.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& folder);

}  // namespace tessera::tokenizer
