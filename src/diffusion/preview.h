#pragma once

#include <vector>

#include "diffusion/job.h"

namespace tessera::diffusion {

/// What latents in token layout look like in the middle of a run, beside what that holds: decoded
/// as the result will be, or by WeightFiles::preview_vae, in smaller tiles where memory asks for
/// it. Nobody's meters count it, the job's memory does. Throws as Progress::preview.
std::vector<Image> preview(const runtime::ModelState& state, const std::stop_token& stop,
                           const Job& job, const tensor::Tensor& tokens);

}  // namespace tessera::diffusion
