#pragma once

#include <string>

#include "models/cogvideox.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Reads the config.json of a CogVideoX transformer; what is missing has the value of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and what fits.
CogVideoXConfig parse_cogvideox_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
PipelineSpec cogvideox_pipeline(const Source& source);

}  // namespace tessera::models
