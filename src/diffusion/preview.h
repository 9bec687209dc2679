#pragma once

#include <vector>

#include "diffusion/job.h"

namespace tessera::diffusion {

/// Decodes latents in token layout in the middle of a run, in smaller tiles if memory is short.
/// Previews count in the job's memory, but not in any meter. Throws as Progress::preview.
std::vector<Image> preview(const runtime::ModelState& state, const std::stop_token& stop,
                           const Job& job, const tensor::Tensor& tokens);

}  // namespace tessera::diffusion
