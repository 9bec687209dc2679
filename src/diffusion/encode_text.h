#pragma once

#include "diffusion/job.h"

namespace tessera::diffusion {

/// Encodes the texts of a job. The encoders run on the first process, or with shard= on the
/// processes of the shard. The first process receives the conditioning (broadcast_conditioning.h).
void encode_text(const runtime::ModelState& state, const GenerateRequest& request,
                 const RunControl& control, Job& job);

}  // namespace tessera::diffusion
