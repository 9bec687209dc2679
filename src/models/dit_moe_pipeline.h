#pragma once

#include <string>

#include "models/dit_moe.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Parses a DiT-MoE's config.json. Throws Error(model) naming `where`, the key, its value and the
/// allowed values.
DitMoeConfig parse_dit_moe_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
PipelineSpec dit_moe_pipeline(const Source& source);

}  // namespace tessera::models
