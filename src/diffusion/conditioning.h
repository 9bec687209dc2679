#pragma once

#include <map>
#include <string>

#include "models/registry.h"
#include "nn/block_stack.h"
#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// What text encoders make of prompts, by the argument names of the reference pipelines:
/// "prompt_embeds", "pooled_prompt_embeds", "prompt_attention_mask", ..., and the same with
/// "negative_" before them. Axis 0 counts prompts.
using Embeddings = std::map<std::string, tensor::Tensor>;

/// Whether a run has a second, unconditional branch, and what its guidance is.
struct Branches {
  bool two = false;
  float scale = 1;     ///< between the branches
  float embedded = 1;  ///< that the transformer takes as an input
};
/// Of a request: models that embed guidance have a second branch only with --true-guidance above 1
/// and something negative, a prompt or embeddings, as in diffusers; others with --guidance above 1,
/// where no negative prompt is an empty one.
Branches branches_of(const models::PipelineSpec& spec, const GenerateRequest& request,
                     float guidance);

/// x as it is, which `from` calls `name`. Throws Error(usage) where it holds NaN or infinity.
tensor::Tensor finite(const tensor::Tensor& x, const std::string& name, const std::string& from);

/// Frames of a video -> frames of its latent; 0 stays 0 (as trained). Throws Error(usage) for
/// frames that the VAE cannot give, or of a model of images.
int64_t latent_frames(const models::PipelineSpec& spec, int64_t frames);

/// Frames that the VAE makes of so many latent ones: it takes them in pairs, an odd one with the
/// first, and only then the first stands for one frame.
int64_t decoded_frames(const models::PipelineSpec& spec, int64_t latent);

/// Prompts in embeddings. Throws Error(usage) unless every tensor that the model reads is there and
/// counts as many.
int64_t prompt_count(const models::PipelineSpec& spec, const Embeddings& embeddings, bool negative);

/// Conditioning of all sequences: each prompt `count` times, then the same unconditional if `two`.
/// One negative prompt serves all.
nn::Conditioning text_conditioning(const models::PipelineSpec& spec, const Embeddings& embeddings,
                                   int64_t count, bool two);

/// Sequences of conditioning by their numbers.
nn::Conditioning take_sequences(const nn::Conditioning& all, const std::vector<int>& sequences);

}  // namespace tessera::diffusion
