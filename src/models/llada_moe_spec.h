#pragma once

#include "models/pipeline_spec.h"
#include "models/token_spec.h"

namespace tessera::models {

/// LLaDA-MoE (inclusionAI/LLaDA-MoE-7B-A1B): bidirectional, softmax router. Throws Error(model)
/// naming `where`, the key and its value.
std::unique_ptr<TokenSpec> llada_moe_spec(const Source& source);

}  // namespace tessera::models
