#pragma once

#include "cluster/agree.h"
#include "runtime/model_state.h"
#include "tessera/complete.h"

namespace tessera::pipeline {

/// The program, the model's configurations, headers and sampled weights, and the request.
cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const GenerateRequest& request);
cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const CompleteRequest& request);
cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const ForwardRequest& request);

}  // namespace tessera::pipeline
