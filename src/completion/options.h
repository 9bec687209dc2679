#pragma once

#include "nn/moe/selection_rule.h"
#include "runtime/model_state.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::completion {

/// Throws Error(plan) for a plan that does not support language models.
void check_token_plan(const runtime::ModelState& state);
/// The decoding policy of a request for a model. Throws Error(usage).
sample::DecodingPolicy policy_of(const CompleteRequest& request, const models::TokenSpec& spec);
/// The selection rule of a request, or the rule of the model's training; a router trained under a
/// rule needs the rule. Throws Error(usage).
nn::SelectionRule rule_of(const CompleteRequest& request, const models::TokenSpec& spec);
/// Whether a pass uses the selection rule: a model's own rule holds for all passes, a request's
/// rule for passes that commit tokens, unless the request extends the rule to more passes.
bool under_rule(const CompleteRequest& request, const models::TokenSpec& spec, PassKind kind);
/// Notes surprising effects of a rule and a policy on the text, and options without effect.
void note_request(const CompleteRequest& request, const models::TokenSpec& spec,
                  const nn::SelectionRule& rule, const sample::DecodingPolicy& policy,
                  const CompleteControl& control);

}  // namespace tessera::completion
