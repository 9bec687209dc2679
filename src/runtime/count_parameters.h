#pragma once

#include "runtime/model_state.h"

namespace tessera::runtime {

/// Counts the parameters of a part of a model from its description: the shapes of all weights of
/// the network. 0 for parts without a network.
int64_t parameters_on_meta(const ModelState& state, const load::Component& part);

}  // namespace tessera::runtime
