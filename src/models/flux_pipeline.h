#pragma once

#include <string>

#include "models/flux.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Parses the config.json of a FLUX transformer; missing keys have the defaults of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and the allowed values.
FluxConfig parse_flux_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
PipelineSpec flux_pipeline(const Source& source);

}  // namespace tessera::models
