#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/pipeline_spec.h"
#include "models/z_image.h"

namespace tessera::models {

/// Parses the config.json of a Z-Image transformer; missing keys have the defaults of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and the allowed values.
ZImageConfig parse_z_image_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
PipelineSpec z_image_pipeline(const Source& source);

/// Published sizes by name.
std::vector<std::pair<std::string, base::Json>> z_image_sizes();

}  // namespace tessera::models
