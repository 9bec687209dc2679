#pragma once

#include <map>
#include <string>

#include "diffusion/job.h"

namespace tessera::diffusion {

/// Encodes the source and the references of a job, which become conditioning: every process of a
/// plan does so for itself.
void encode_images(const runtime::ModelState& state, const GenerateRequest& request, Job& job);

/// Sets "fill_tokens" of all sequences from the job's source, as FluxFillPipeline of diffusers
/// draws and packs them: the masked image's latent, then the mask; zeros before it is encoded.
void set_fill(const GenerateRequest& request, Job& job);

/// Packed tokens [batch, tokens, channels] without the channels behind those of the noise, which
/// become "fill_tokens". Throws Error(usage) that names `file` where there are none.
tensor::Tensor take_fill(const tensor::Tensor& packed, const nn::TokenLayout& layout,
                         const std::string& file,
                         std::map<std::string, tensor::Tensor>& conditioning);

}  // namespace tessera::diffusion
