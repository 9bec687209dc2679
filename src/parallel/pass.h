#pragma once

#include <string>
#include <vector>

#include "parallel/denoise.h"

namespace tessera::parallel {

/// Where the tokens of a pass stand: of all sequences at once, or of the two halves that go in
/// turn.
using Places = std::vector<nn::PlacementPtr>;
Places places_of(const nn::Denoiser& model, const nn::Context& context, const nn::TokenView& view,
                 const Setup& setup);

/// Gives control.trace a tensor on the host.
void show(const DenoiseControl& control, const std::string& name, const tensor::Tensor& x);

enum class Watch { nothing, blocks, numbers };  ///< blocks: for control.trace

/// A pass of the network over the tokens of a placement, as far as the rank's stage has a part in
/// it: the first one embeds the latent, the last one has the prediction, others leave it undefined.
/// Throws Error(model) naming the block that leaves no numbers, where these are watched.
tensor::Tensor run_rows(const nn::Denoiser& model, const nn::StepContext& step,
                        const nn::Placement& placement, const tensor::Tensor& latent, Setup& setup,
                        const DenoiseControl& control, Watch watch, int half = 0);
/// The same of all of `places`, in turn. Numbers are watched on a host.
tensor::Tensor run_blocks(const nn::Denoiser& model, const nn::StepContext& step,
                          const Places& places, const tensor::Tensor& latent, Setup& setup,
                          const DenoiseControl& control);

}  // namespace tessera::parallel
