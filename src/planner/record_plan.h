#pragma once

#include <cstdint>
#include <vector>

#include "diffusion/job.h"
#include "planner/recording.h"
#include "runtime/model_state.h"

namespace tessera::planner {

/// A dry run of a part: the recording of all ranks, and the largest memory of a rank in bytes.
struct RecordedPlan {
  Recording recording;
  int64_t rank_bytes = 0;
  double flops = 0;      ///< the busiest rank computes so many in a step
  bool steady = true;    ///< false if steps differ although the plan remembers nothing
  bool repeats = false;  ///< steps were seen to be equal
};

/// Records the denoising of a job under a plan, and sets the plan of `state`. Reads no weight.
/// Throws Error(plan) if the plan cannot run. With `brief`, two steps are tried first if the plan
/// remembers nothing, and stand for all steps if they are equal; the result is the same. `repeats`:
/// the sampler's steps are known to be equal, so a plan whose steps differ only first and last
/// needs three.
RecordedPlan record_plan(runtime::ModelState& state, const diffusion::Job& job, const Plan& plan,
                         bool brief = true, bool repeats = false);
/// Records the decoding of the job's last image or video: `ranks` ranks decode in bands, and a
/// single rank decodes in tiles if the whole takes more than `room` bytes.
RecordedPlan record_decode(runtime::ModelState& state, const diffusion::Job& job, int ranks,
                           double room);

}  // namespace tessera::planner
