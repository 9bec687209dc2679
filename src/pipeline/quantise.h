#pragma once

#include "pipeline/model_state.h"

namespace tessera::pipeline {

/// As Model::quantise.
QuantiseResult quantise(const ModelState& state, const QuantiseRequest& request,
                        const RunControl& control);

}  // namespace tessera::pipeline
