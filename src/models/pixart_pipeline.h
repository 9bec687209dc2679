#pragma once

#include <string>

#include "models/pipeline_spec.h"
#include "models/pixart.h"

namespace tessera::models {

/// Parses the config.json of a PixArt transformer; missing keys have the defaults of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and the allowed values.
PixartConfig parse_pixart_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
PipelineSpec pixart_pipeline(const Source& source);

}  // namespace tessera::models
