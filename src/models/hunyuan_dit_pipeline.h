#pragma once

#include <string>

#include "models/hunyuan_dit.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Reads the config.json of a HunyuanDiT transformer; what is missing has the value of the
/// diffusers class. Throws Error(model) naming `where`, the key, its value and what fits.
HunyuanDitConfig parse_hunyuan_dit_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
PipelineSpec hunyuan_dit_pipeline(const Source& source);

}  // namespace tessera::models
