#pragma once

#include "pipeline/model_state.h"

namespace tessera::pipeline {

/// One component on named tensors; as Model::forward.
NamedTensors forward(ModelState& state, const ForwardRequest& request, const RunControl& control);

}  // namespace tessera::pipeline
