#pragma once

#include <string>
#include <vector>

#include "parallel/denoise.h"

namespace tessera::parallel {

/// The places of the tokens of a pass: all sequences at once, or two halves in turn (of a staggered
/// batch, or branches of guidance that decide apart).
using Places = std::vector<nn::PlacementPtr>;
Places places_of(const nn::Denoiser& model, const nn::Context& context, const nn::TokenView& view,
                 const Setup& setup);

/// Gives control.trace a tensor on the host.
void show(const DenoiseControl& control, const std::string& name, const tensor::Tensor& x);

enum class Watch { nothing, blocks, numbers };  ///< blocks: for control.trace

/// A pass of the network over the tokens of a placement, within the rank's stage: the first stage
/// embeds the latent, the last returns the prediction, others return an undefined tensor. With
/// watched numbers, throws Error(model) with the first block that gives NaN or infinity. `reuse`:
/// a step cache that may take the place of blocks.
tensor::Tensor run_rows(const nn::Denoiser& model, const nn::StepContext& step,
                        const nn::Placement& placement, const tensor::Tensor& latent, Setup& setup,
                        const DenoiseControl& control, Watch watch, int half = 0,
                        StepReuse* reuse = nullptr);
/// The same for all of `places`, in turn. Numbers are checked on a host.
tensor::Tensor run_blocks(const nn::Denoiser& model, const nn::StepContext& step,
                          const Places& places, const tensor::Tensor& latent, Setup& setup,
                          const DenoiseControl& control);

}  // namespace tessera::parallel
