#pragma once

#include "diffusion/job.h"
#include "runtime/model_state.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// What a request means for an open model: sizes, schedule, conditioning of all sequences. Throws
/// Error(usage) for what does not fit, Error(model) for parts that are missing. Reads no weight:
/// the conditioning of texts has its shape, and zeros for numbers.
Job plan_job(const runtime::ModelState& state, const GenerateRequest& request);
/// The same as far as configurations tell it: texts are the longest, and on meta.
Job sketch_job(const runtime::ModelState& state, const GenerateRequest& request);

}  // namespace tessera::diffusion
