#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sample/canvas.h"
#include "tessera/complete.h"

namespace tessera::sample {

/// How a masked diffusion model fills in its masks: which positions a pass commits, what it
/// computes again, when it ends. Greedy unless temperature > 0. Temperature, top_k and top_p, in
/// this order as in LLaDA2's program, say which token a mask becomes; how sure it is, and so what a
/// pass commits, is the model's own, as in LLaDA (Nie et al. 2025): one token left would always be
/// sure.
struct DecodingPolicy {
  /// steps: shares of a block's masks, most confident first (LLaDA, Nie et al. 2025); threshold:
  /// all of a confidence, with `steps` at least a share (LLaDA2); factor and the caches: Fast-dLLM
  /// (Wu et al. 2025); hierarchy: a best of every run of masks; credit: confidence that lasts
  /// counts more; edit: as threshold with a schedule, and what stands in a block may be replaced
  /// until a pass changes nothing (LLaDA2.1, Bie et al. 2026).
  /// canvas: no masks; a canvas of random tokens is replaced pass by pass (sample/canvas.h).
  enum class Rule : uint8_t { steps, threshold, factor, hierarchy, credit, edit, canvas };

  Rule rule = Rule::threshold;
  int steps = 0;  ///< commits a block is cut into; 0: no schedule
  double threshold = 0.9, factor = 1, low = 0.4;
  double alpha = 0.7, gamma = 0.2, beta = 0.8;  ///< credit
  double editing = 0.5;                         ///< edit: confidence that replaces a token
  int posts = 16;  ///< edit: most passes over a block without masks (of those that it began with)
  bool commit_last_failing = false;  ///< factor, as the published program
  CachePolicy cache{KvCache::none};  ///< not automatic
  StopAtEos stop = StopAtEos::none;
  int block = 32;  ///< tokens
  /// Passes as the published programs make them: a prompt and a finished block are kept by passes
  /// of their own, a last block is filled beyond what was asked for. Else a block's first pass
  /// keeps what stands before it, with the same numbers.
  bool as_published = false;
  double temperature = 0;
  int64_t top_k = 0;  ///< of the likeliest tokens one is drawn; 0: of all
  double top_p = 1;   ///< of the fewest likeliest ones of this probability (Holtzman et al. 2020)
  /// A logit above zero is divided by it, one below zero multiplied, where the token stands
  /// elsewhere in prompt or answer (CTRL, Keskar et al. 2019; ends of text are free). All that a
  /// rule looks at follows: choice and confidence.
  double repetition_penalty = 1;
  uint64_t seed = 0;

  CanvasRule canvas{};  ///< canvas

  bool denoises() const { return rule == Rule::canvas; }
  /// Whether a pass may replace a token that an earlier one decided.
  bool edits() const { return rule == Rule::edit || denoises(); }
};

/// Passes over a block without masks: tokens that edit one another may go round for ever.
inline constexpr int kMostPosts = 1000;

/// Ids that mean something to the decoder.
struct SpecialIds {
  int32_t mask = 0;
  std::vector<int32_t> ends{};      ///< end of text
  int32_t remove = -1, split = -1;  ///< of models that edit the length of a block; -1: others

  bool edits_length() const { return remove >= 0; }
};

/// Reads "steps:N", "threshold:T", "factor:F[,upstream]", "hierarchy:T,LOW",
/// "credit:T[,alpha,gamma,beta]", "edit:T,E[,POSTS]", "edit:quality", "edit:speed" or
/// "canvas[:NAME=VALUE,...]" into a policy.
/// Throws Error(usage) naming what does not fit.
void read_decode(const std::string& text, DecodingPolicy& policy);
/// Throws Error(usage) for options that contradict each other or the kind of model.
void check_policy(const DecodingPolicy& policy, bool block_causal);

}  // namespace tessera::sample
