#pragma once

#include <cstdint>
#include <vector>

#include "models/token_spec.h"
#include "nn/moe/selection_rule.h"
#include "sample/decode.h"

namespace tessera::completion {

/// A run of a language model as memory sees it: tokens of each sequence, prompt and answer, how
/// many of each sequence a pass decides, and, of models that keep finished blocks, with how many of
/// each the first pass fills the cache, but for those that an earlier request left.
struct TokenRun {
  std::vector<int64_t> lengths;
  int64_t decided = 0;
  int block = 0;
  std::vector<int64_t> prefill{};  ///< empty: every pass is over all tokens
  bool joined = false;             ///< what fills the cache is part of the next block's first pass
  nn::SelectionRule rule{};        ///< which may give a token more experts than the model's router
  /// Of the one sequence: tokens whose keys and values come from an earlier request's cache, and
  /// the slots of that.
  int64_t kept = 0, kept_slots = 0;
  /// Of all layers together, routed experts that a rank has in memory at once, if it has so many,
  /// while others are read from the folder when tokens go to them; 0: all are, always.
  int64_t experts = 0;
  int64_t canvas = 0;  ///< vocabulary of a model that denoises canvases; 0: others
};

/// A run of these prompts, with nothing kept of an earlier request.
TokenRun token_run_of(const std::vector<sample::TokenPrompt>& prompts,
                      const sample::DecodingPolicy& policy, const models::TokenSpec& spec,
                      const nn::SelectionRule& rule);

}  // namespace tessera::completion
