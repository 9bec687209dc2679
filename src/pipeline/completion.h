#pragma once

#include <functional>
#include <set>
#include <vector>

#include "nn/moe/log.h"
#include "pipeline/language.h"
#include "pipeline/model_state.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::pipeline {

/// What a study sees of a run on one rank; both may be empty.
struct PassWatch {
  /// Before each pass: the prompts that are in it under the selection rule.
  std::function<void(const std::set<int>& prompts)> before;
  std::function<void(const nn::MoeWork&)> experts;  ///< each call of an MoE layer
};

/// Answers to prompts; as Model::complete.
CompleteResult complete(ModelState& state, const CompleteRequest& request,
                        const CompleteControl& control, const PassWatch& watch = {});

/// As Model::check.
void check(ModelState& state, const CompleteRequest& request, const std::stop_token& stop);

/// Throws Error(plan) for a plan under which a language model cannot run.
void check_token_plan(const ModelState& state);
/// The policy that a request's words mean for a model. Throws Error(usage).
sample::DecodingPolicy policy_of(const CompleteRequest& request, const models::TokenSpec& spec);
/// Its prompts as ids, checked against vocabulary and context. Throws Error(usage).
std::vector<sample::TokenPrompt> prompts_of(const CompleteRequest& request,
                                            const Language& language,
                                            const sample::DecodingPolicy& policy);

}  // namespace tessera::pipeline
