#pragma once

#include "base/json.h"
#include "load/gguf_keys.h"

namespace tessera::load {

/// The tokenizer of a GGUF file as a tokenizer.json: byte-level BPE ("gpt2" of the pre-tokenizers
/// of Ling and LLaDA) or BPE of characters with byte fallback ("gemma4"); null: none. As in
/// llama.cpp, texts are not normalised, and added tokens take no neighbouring spaces. Throws
/// Error(model) naming a missing or unsupported key, or a token.
base::Json gguf_tokenizer(const GgufKeys& keys);
/// Special tokens and chat templates as a tokenizer_config.json.
base::Json gguf_tokenizer_config(const GgufKeys& keys);

}  // namespace tessera::load
