#pragma once

#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

inline const std::string kVideoModel = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";

/// A request for 32 x 32 pixels without guidance from the small CogVideoX, with zeros as text in a
/// file.
inline GenerateRequest small_video(const Scratch& scratch, int64_t frames = 9) {
  GenerateRequest request;
  request.embeddings = scratch / "text.safetensors";
  load::write_safetensors(
      request.embeddings,
      {{"prompt_embeds", tensor::Tensor::zeros({1, 226, 32}, tensor::DType::f32)}});
  request.steps = 1;
  request.guidance = 1;
  request.width = request.height = 32;
  request.frames = frames;
  return request;
}

}  // namespace tessera::golden
