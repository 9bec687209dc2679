#pragma once

#include "nn/moe/selection_rule.h"
#include "runtime/model_state.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::completion {

/// Throws Error(plan) for a plan under which a language model cannot run.
void check_token_plan(const runtime::ModelState& state);
/// The policy that a request's words mean for a model. Throws Error(usage).
sample::DecodingPolicy policy_of(const CompleteRequest& request, const models::TokenSpec& spec);
/// The selection rule of a request, or the one with which the model was trained: a router under
/// another rule is no router. Throws Error(usage).
nn::SelectionRule rule_of(const CompleteRequest& request, const models::TokenSpec& spec);
/// Whether a pass is under the selection rule: a model's own rule is for all passes, a request's
/// for those that commit tokens, unless it asks for more.
bool under_rule(const CompleteRequest& request, const models::TokenSpec& spec, PassKind kind);
/// Notes about a rule and a policy that change the text in ways that one may not expect, and about
/// options without effect.
void note_request(const CompleteRequest& request, const models::TokenSpec& spec,
                  const nn::SelectionRule& rule, const sample::DecodingPolicy& policy,
                  const CompleteControl& control);

}  // namespace tessera::completion
