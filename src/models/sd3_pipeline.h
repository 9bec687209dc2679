#pragma once

#include <string>

#include "models/pipeline_spec.h"
#include "models/sd3.h"

namespace tessera::models {

/// Parses the config.json of a Stable Diffusion 3 transformer; missing keys have the defaults of
/// the diffusers class. Throws Error(model) naming `where`, the key, its value and the allowed
/// values.
Sd3Config parse_sd3_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
PipelineSpec sd3_pipeline(const Source& source);

}  // namespace tessera::models
