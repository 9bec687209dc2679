#pragma once

#include "diffusion/conditioning.h"
#include "diffusion/job.h"

namespace tessera::diffusion {

/// Steps and guidance of a request: as asked, else of its few-step adapters
/// (load::few_steps_of_adapter), else of the model.
struct AskedRun {
  int steps = 0;
  float guidance = 1;
};
/// Says in the notes which of them an adapter gives, and in one note if those asked for are unusual
/// for the model and an image is decoded. Throws Error(usage) for lists of timesteps and sigmas
/// that the scheduler does not take, and for steps that are not as many.
AskedRun asked_run(const runtime::ModelState& state, const GenerateRequest& request,
                   std::vector<std::string>& notes);
/// The sampler of a model with text, of the folder's scheduler or the one that is asked for.
void choose_sampler(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                    Job& job);
/// Notes what the sampler does otherwise than one would think.
void note_passes(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                 Job& job);

}  // namespace tessera::diffusion
