#pragma once

#include "models/pipeline_spec.h"
#include "models/token_recipe.h"

namespace tessera::models {

/// LLaDA-MoE (inclusionAI/LLaDA-MoE-7B-A1B): bidirectional, softmax router. Throws Error(model)
/// naming `where`, the key and its value.
std::unique_ptr<TokenRecipe> llada_moe_recipe(const Source& source);

}  // namespace tessera::models
