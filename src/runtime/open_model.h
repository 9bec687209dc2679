#pragma once

#include <string>

#include "runtime/model_state.h"

namespace tessera::runtime {

/// Reads the folder and starts the device; as Model::open.
void open_model(const std::string& model, const RunOptions& options, ModelState& state,
                const WeightFiles& files = {});

/// Opens a published model by its sizes (models/published_models.h). Without files the model is
/// only for dry runs. Throws Error(model) for an unknown name, listing the known names.
void open_published(const std::string& name, const RunOptions& options, ModelState& state);

}  // namespace tessera::runtime
