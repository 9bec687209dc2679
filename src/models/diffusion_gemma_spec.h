#pragma once

#include <string>

#include "base/json.h"
#include "models/diffusion_gemma.h"
#include "models/pipeline_spec.h"
#include "models/token_spec.h"

namespace tessera::models {

/// Parses the config.json of a DiffusionGemma folder. Throws Error(model) naming a key with an
/// unsupported value.
DiffusionGemmaConfig parse_diffusion_gemma_config(const base::Json& config,
                                                  const std::string& where);

TokenSpec diffusion_gemma_spec(const Source& source);

}  // namespace tessera::models
