#pragma once

#include "pipeline/model_state.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Noise to images; as Model::generate.
GenerateResult generate(ModelState& state, const GenerateRequest& request,
                        const RunControl& control);

}  // namespace tessera::pipeline
