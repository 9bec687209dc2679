#pragma once

#include "models/pipeline_spec.h"
#include "models/token_spec.h"

namespace tessera::models {

/// LLaDA2 (inclusionAI/LLaDA2.0-mini, -preview): block-causal, sigmoid router with a ranking bias
/// and groups, shared expert, dense first layers, partial rotary. Throws Error(model) naming
/// `where`, the key and its value.
std::unique_ptr<TokenSpec> llada2_spec(const Source& source);

}  // namespace tessera::models
