#pragma once

#include "diffusion/job.h"

namespace tessera::diffusion {

/// Gives texts their conditioning: runs the encoders, for all processes on the first, or on those
/// of shard=; the first has it then (share_text.h).
void encode_text(const runtime::ModelState& state, const GenerateRequest& request,
                 const RunControl& control, Job& job);

}  // namespace tessera::diffusion
