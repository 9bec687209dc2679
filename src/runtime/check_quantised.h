#pragma once

#include "runtime/model_state.h"

namespace tessera::runtime {

/// Throws Error(usage) for options and rules without effect on a model, and for forms without
/// kernels on its device.
void check_quantises(const ModelState& state);
/// Throws Error(usage) for a quantised folder without kernels on the device.
void check_device_forms(const ModelState& state);

}  // namespace tessera::runtime
