#pragma once

#include "diffusion/job.h"
#include "runtime/model_state.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// Plans a request for an open model: sizes, schedule, conditioning of all sequences. Throws
/// Error(usage) for invalid requests, Error(model) for missing parts. Reads no weights: the
/// conditioning of texts has its final shape but holds zeros.
Job plan_job(const runtime::ModelState& state, const GenerateRequest& request);
/// Plans from configurations alone: texts have the maximal length, and tensors are on meta.
Job sketch_job(const runtime::ModelState& state, const GenerateRequest& request);

}  // namespace tessera::diffusion
