#pragma once

#include <string>

#include "models/llada.h"
#include "models/pipeline_spec.h"
#include "models/token_spec.h"

namespace tessera::models {

/// LLaDA2 (inclusionAI/LLaDA2.0-mini, -preview): block-causal, sigmoid router with a ranking bias
/// and groups, shared expert, dense first layers, partial rotary. Throws Error(model) naming
/// `where`, the key and its value.
LladaConfig parse_llada2_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
TokenSpec llada2_spec(const Source& source);

}  // namespace tessera::models
