#pragma once

#include <string>

#include "base/json.h"
#include "load/diffusers_folder.h"

namespace tessera::load {

/// The files of a language model's folder, from the metadata of its GGUF file (keys of llama.cpp).
struct GgufModel {
  base::Json config;            ///< config.json
  base::Json generation;        ///< generation_config.json
  base::Json tokenizer;         ///< tokenizer.json; null: the file has no tokenizer
  base::Json tokenizer_config;  ///< tokenizer_config.json, with the chat template
};

/// Architectures with such a description: "llada-moe", "llada2", "diffusion-gemma".
std::string described_architectures();
/// The architecture of a GGUF file with such a description; "": another file.
std::string described_architecture(const std::string& path);
/// Whether a part of a model (load/diffusers_folder.h) is described by its GGUF file alone; its
/// folder is the file.
inline bool is_whole_model(const Component& part) {
  return !part.file.empty() && part.folder == part.file;
}
/// Describes the model of such a file. Some values follow from its tensors: biases, norms of
/// queries and keys, tied embeddings, shared experts, rotated channels of global layers. Throws
/// Error(model) naming the file and a missing, unknown or unsupported key.
GgufModel read_gguf_model(const std::string& path);

}  // namespace tessera::load
