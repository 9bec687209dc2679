#pragma once

#include <string>

#include "runtime/model_state.h"

namespace tessera::runtime {

/// As open_model(), of a published model by its sizes (models/published_models.h): there are no
/// files, so it can be rehearsed and not run. Throws Error(model) for a name that is not known,
/// listing those that are.
void open_published(const std::string& name, const RunOptions& options, ModelState& state);

}  // namespace tessera::runtime
