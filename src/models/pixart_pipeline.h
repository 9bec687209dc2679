#pragma once

#include <string>

#include "models/pipeline_spec.h"
#include "models/pixart.h"

namespace tessera::models {

/// Reads the config.json of a PixArt transformer; what is missing has the value of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and what fits.
PixartConfig parse_pixart_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
PipelineSpec pixart_pipeline(const Source& source);

}  // namespace tessera::models
