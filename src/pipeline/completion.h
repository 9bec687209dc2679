#pragma once

#include <vector>

#include "pipeline/language.h"
#include "pipeline/model_state.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::pipeline {

/// Answers to prompts; as Model::complete.
CompleteResult complete(ModelState& state, const CompleteRequest& request,
                        const CompleteControl& control);

/// The policy that a request's words mean for a model. Throws Error(usage).
sample::DecodingPolicy policy_of(const CompleteRequest& request, const models::TokenFacts& facts);
/// Its prompts as ids, checked against vocabulary and context. Throws Error(usage).
std::vector<sample::TokenPrompt> prompts_of(const CompleteRequest& request,
                                            const Language& language,
                                            const sample::DecodingPolicy& policy);
/// Whether a pass stands under the request's selection rule: all that commit tokens, unless asked
/// otherwise.
bool ruled(const CompleteRequest& request, sample::PassKind kind);

}  // namespace tessera::pipeline
