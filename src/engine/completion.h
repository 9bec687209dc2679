#pragma once

#include <vector>

#include "engine/language.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::engine {

/// The policy that a request's words mean for a model. Throws Error(usage).
sample::DecodingPolicy policy_of(const CompleteRequest& request, const models::TokenFacts& facts);
/// Its prompts as ids, checked against vocabulary and context. Throws Error(usage).
std::vector<sample::TokenPrompt> prompts_of(const CompleteRequest& request,
                                            const Language& language,
                                            const sample::DecodingPolicy& policy);
/// Whether a pass stands under the request's selection rule: all that commit tokens, unless asked
/// otherwise.
bool ruled(const CompleteRequest& request, sample::PassKind kind);

}  // namespace tessera::engine
