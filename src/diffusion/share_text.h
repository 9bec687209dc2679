#pragma once

#include "diffusion/job.h"

namespace tessera::diffusion {

/// The first process gives the others what encoders made of a job's texts: each that of its
/// sequences, none to whom has no sequence; they keep zeros for the rest. All call it, when all
/// have done what one of them may fail at alone: what is sent must be received.
void share_text(const runtime::ModelState& state, Job& job);

}  // namespace tessera::diffusion
