#pragma once

#include "pipeline/plan_job.h"

namespace tessera::pipeline {

/// Whether this process runs text encoders: of ranks that are processes the first one does, and
/// under shard= those that have its weights with it (spread_text.h).
bool encodes_text(const ModelState& state);
/// The first process gives the others what encoders made of a job's texts: each that of its
/// sequences, none to whom has no sequence; they keep zeros for the rest. All call it, when all
/// have done what one of them may fail at alone: what is sent must be received.
void share_text(const ModelState& state, Job& job);

}  // namespace tessera::pipeline
