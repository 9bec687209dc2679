#pragma once

#include "runtime/model_state.h"

namespace tessera::runtime {

/// Parameters of a part of a model by its description alone: of all names that its network asks
/// for. 0 for parts without a network.
int64_t parameters_on_meta(const ModelState& state, const load::Component& part);

}  // namespace tessera::runtime
