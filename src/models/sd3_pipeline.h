#pragma once

#include <string>

#include "models/pipeline_spec.h"
#include "models/sd3.h"

namespace tessera::models {

/// Reads the config.json of a Stable Diffusion 3 transformer; what is missing has the value of the
/// diffusers class. Throws Error(model) naming `where`, the key, its value and what fits.
Sd3Config parse_sd3_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
PipelineSpec sd3_pipeline(const Source& source);

}  // namespace tessera::models
