#pragma once

#include <span>

#include "diffusion/job.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// The reference images of a request, in order: all its images, or those after the start image.
/// Empty for models without reference images.
std::span<const InputImage> references_of(const models::PipelineSpec& spec,
                                          const GenerateRequest& request);

/// Reads these as diffusers' Flux2KleinPipeline does: at most 1024^2 pixels, cut in the middle to
/// multiples of the model's patch. Throws Error(usage) for sides below 64 and ratios above 8.
void read_references(const runtime::ModelState& state, const GenerateRequest& request, Job& job);

/// Adds their tokens to the layout and the conditioning of a job, which has both. Throws
/// Error(memory) for too many.
void plan_references(const runtime::ModelState& state, Job& job);
/// Sets "reference_tokens" and "reference_sizes" of all sequences: the latents of the images, zeros
/// before they are encoded.
void set_references(const runtime::ModelState& state, Job& job);

}  // namespace tessera::diffusion
