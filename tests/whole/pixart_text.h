#pragma once

#include <map>
#include <string>

#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

/// Writes embeddings of a prompt and a negative prompt for the PixArt of the tests; returns the
/// file.
inline std::string pixart_text(const Scratch& scratch) {
  const load::SafetensorsFile text(TESSERA_TEST_DATA "/diffusers/pixart_alpha/io_text.safetensors");
  std::map<std::string, tensor::Tensor> given;
  for (const std::string name : {"prompt_embeds", "prompt_attention_mask"}) {
    given[name] = text.get("prompt.0." + name);
    given["negative_" + name] = text.get("prompt.1." + name);
  }
  const std::string path = scratch / "text.safetensors";
  load::write_safetensors(path, given);
  return path;
}

}  // namespace tessera::golden
