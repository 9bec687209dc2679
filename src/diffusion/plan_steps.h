#pragma once

#include "diffusion/conditioning.h"
#include "diffusion/job.h"

namespace tessera::diffusion {

/// A run takes these steps and this guidance: the request's values, else those of few-step adapters
/// (load::few_steps_of_adapter), else the model's.
struct RunSettings {
  int steps = 0;
  float guidance = 1;
};
/// Chooses steps and guidance. Adds a note if an adapter gives them, and a note if the requested
/// values are unusual for the model and an image is decoded. Throws Error(usage) for timesteps or
/// sigmas that the scheduler does not take, and if `steps` differs from the steps of the list.
RunSettings run_settings(const runtime::ModelState& state, const GenerateRequest& request,
                         std::vector<std::string>& notes);
/// Creates the sampler of a text-conditioned model from the requested scheduler, else the folder's.
void choose_sampler(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                    Job& job);
/// Adds notes on passes, timesteps and noise of the sampler that a user may not expect.
void note_passes(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                 Job& job);

}  // namespace tessera::diffusion
