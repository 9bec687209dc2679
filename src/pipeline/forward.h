#pragma once

#include "runtime/model_state.h"

namespace tessera::pipeline {

/// Runs a component on named tensors; as Model::forward.
NamedTensors forward(runtime::ModelState& state, const ForwardRequest& request,
                     const RunControl& control);

}  // namespace tessera::pipeline
