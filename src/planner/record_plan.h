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
  double flops = 0;    ///< of a step, of the rank that computes most
  bool steady = true;  ///< unless steps differ although the plan remembers nothing
};

/// The denoising of a job under a plan, which becomes that of `state`. Reads no weight. Throws
/// Error(plan) for a plan that cannot run. `brief`: of plans that remember nothing, two steps are
/// tried first, and stand for all if they are equal; the result is the same.
RecordedPlan record_plan(runtime::ModelState& state, const diffusion::Job& job, const Plan& plan,
                         bool brief = true);
/// The decoding of its last image or video, by so many ranks, in bands; one alone that has no more
/// than `room` bytes does so in tiles where it must.
RecordedPlan record_decode(runtime::ModelState& state, const diffusion::Job& job, int ranks,
                           double room);

}  // namespace tessera::planner
