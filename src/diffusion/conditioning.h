#pragma once

#include <map>
#include <string>

#include "models/registry.h"
#include "nn/block_stack.h"
#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// Embeddings of prompts, by the argument names of the reference pipelines: "prompt_embeds",
/// "pooled_prompt_embeds", "prompt_attention_mask", ..., and the same with "negative_" before them.
/// Axis 0 counts prompts.
using Embeddings = std::map<std::string, tensor::Tensor>;

/// Whether a run has a second, unconditional branch, and the guidance of the run.
struct Branches {
  bool two = false;
  float scale = 1;     ///< between the branches
  float embedded = 1;  ///< an input of the transformer
};
/// Chooses the branches of a request, as in diffusers. Models with embedded guidance have a second
/// branch only with --true-guidance above 1 and a negative prompt or embeddings. Other models have
/// a second branch with --guidance above 1; without a negative prompt they use an empty text.
Branches branches_of(const models::PipelineSpec& spec, const GenerateRequest& request,
                     float guidance);

/// Returns x unchanged. Throws Error(usage) if x, the tensor `name` of `from`, holds NaN or
/// infinity.
tensor::Tensor finite(const tensor::Tensor& x, const std::string& name, const std::string& from);

/// Frames of a video -> frames of its latent; 0 stays 0 (as trained). Throws Error(usage) for a
/// number of frames outside the VAE's grid, and for frames of an image model.
int64_t latent_frames(const models::PipelineSpec& spec, int64_t frames);

/// Frames that the VAE decodes from `latent` frames. The VAE takes latent frames in pairs, an odd
/// number with the first frame alone; only then the first latent frame stands for one frame.
int64_t decoded_frames(const models::PipelineSpec& spec, int64_t latent);

/// The number of prompts in embeddings. Throws Error(usage) unless every tensor of the model's
/// inputs is present and all have the same count.
int64_t prompt_count(const models::PipelineSpec& spec, const Embeddings& embeddings, bool negative);

/// Conditioning of all sequences: each prompt `count` times, then the same unconditional if `two`.
/// A single negative prompt serves all prompts.
nn::Conditioning text_conditioning(const models::PipelineSpec& spec, const Embeddings& embeddings,
                                   int64_t count, bool two);

/// Sequences of conditioning by their numbers.
nn::Conditioning take_sequences(const nn::Conditioning& conditioning,
                                const std::vector<int>& sequences);

}  // namespace tessera::diffusion
