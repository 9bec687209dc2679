#pragma once

#include <string>

#include "models/llada.h"
#include "models/pipeline_spec.h"
#include "models/token_spec.h"

namespace tessera::models {

/// LLaDA-MoE (inclusionAI/LLaDA-MoE-7B-A1B): bidirectional, softmax router. Throws Error(model)
/// naming `where`, the key and its value.
LladaConfig parse_llada_moe_config(const base::Json& config, const std::string& where);

/// Registry entry of the family.
TokenSpec llada_moe_spec(const Source& source);

}  // namespace tessera::models
