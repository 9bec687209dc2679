#pragma once

#include <cstdint>
#include <vector>

#include "models/token_spec.h"
#include "nn/moe/selection_rule.h"
#include "sample/decode.h"

namespace tessera::completion {

/// The sizes of a language model's run that determine memory: tokens of each sequence, with prompt
/// and answer; positions of each sequence decided by a pass; and for models with a KV cache of
/// finished blocks the tokens of each sequence that the first pass adds to the cache, without
/// tokens of an earlier request.
struct TokenRun {
  std::vector<int64_t> lengths;
  int64_t decided = 0;
  int block = 0;
  std::vector<int64_t> prefill{};  ///< empty: every pass is over all tokens
  bool joined = false;             ///< the first pass of the next block fills the cache
  nn::SelectionRule rule{};        ///< may give a token more experts than the model's router
  /// Tokens with keys and values from an earlier request, and the tokens of its conversation.
  struct CachedPrefix {
    int64_t tokens = 0, slots = 0;
  };
  std::vector<CachedPrefix> kept{};  ///< by sequence; empty: none
  /// Routed experts in a rank's memory at once, over all layers, while others are read from the
  /// folder on demand; 0: all experts stay in memory.
  int64_t experts = 0;
  int64_t canvas = 0;  ///< vocabulary of a canvas model; 0: other models

  int64_t kept_tokens(size_t sequence) const { return kept.empty() ? 0 : kept.at(sequence).tokens; }
};

/// A run of these prompts.
TokenRun token_run_of(const std::vector<sample::TokenPrompt>& prompts,
                      const sample::DecodingPolicy& policy, const models::TokenSpec& spec,
                      const nn::SelectionRule& rule);

}  // namespace tessera::completion
