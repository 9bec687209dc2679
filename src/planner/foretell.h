#pragma once

#include <cstdint>
#include <vector>

#include "diffusion/job.h"
#include "planner/recording.h"
#include "runtime/model_state.h"

namespace tessera::planner {

/// A dry run of a part: the recording of all ranks, and the largest memory of a rank in bytes.
struct Foretold {
  Recording recording;
  int64_t rank_bytes = 0;
  double flops = 0;  ///< FLOPs of a step, at the rank with the most work
};

/// Predicts the denoising of a job under a plan, and sets the plan in `state`. Reads no weights.
/// Throws Error(plan) for an invalid plan.
Foretold foretell(runtime::ModelState& state, const diffusion::Job& job, const Plan& plan);
/// Predicts the decoding of the job's last image or video by `ranks` ranks, in bands; a single rank
/// uses tiles if `room` bytes are too few.
Foretold foretell_decode(runtime::ModelState& state, const diffusion::Job& job, int ranks,
                         double room);

}  // namespace tessera::planner
