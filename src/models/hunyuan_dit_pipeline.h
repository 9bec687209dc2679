#pragma once

#include <string>

#include "models/hunyuan_dit.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Parses the config.json of a HunyuanDiT transformer; missing keys have the defaults of the
/// diffusers class. Throws Error(model) naming `where`, the key, its value and the allowed values.
HunyuanDitConfig parse_hunyuan_dit_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
PipelineSpec hunyuan_dit_pipeline(const Source& source);

}  // namespace tessera::models
