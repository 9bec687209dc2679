#pragma once

#include "runtime/model_state.h"

namespace tessera::pipeline {

/// As Model::quantise.
QuantiseResult quantise(const runtime::ModelState& state, const QuantiseRequest& request,
                        const RunControl& control);

}  // namespace tessera::pipeline
