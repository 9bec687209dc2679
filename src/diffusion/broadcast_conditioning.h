#pragma once

#include "diffusion/job.h"

namespace tessera::diffusion {

/// Distributes the conditioning of a job's texts from the first process. Each process receives only
/// the conditioning of its own sequences and keeps zeros elsewhere; a process without sequences
/// receives nothing. All processes must call this function after every step that may fail on a
/// single process, because sent messages must be received.
void broadcast_conditioning(const runtime::ModelState& state, Job& job);

}  // namespace tessera::diffusion
