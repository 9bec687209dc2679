#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sample/canvas.h"
#include "tessera/complete.h"

namespace tessera::sample {

/// Policy to fill in the masks of a masked diffusion model: the positions to commit in a pass, the
/// tokens to compute again, and the end. Greedy unless temperature > 0. Temperature, top_k and
/// top_p, in this order as in LLaDA2's program, choose the token of a mask. The confidence, and so
/// the choice of commits, comes from the model's own distribution, as in LLaDA (Nie et al. 2025): a
/// single remaining token would always have confidence 1.
struct DecodingPolicy {
  /// steps: shares of a block's masks, most confident first (LLaDA, Nie et al. 2025); threshold:
  /// all tokens above a confidence, with `steps` at least a share (LLaDA2); factor and the caches:
  /// Fast-dLLM (Wu et al. 2025); hierarchy: the best token of every run of masks; credit: lasting
  /// confidence counts more; edit: as threshold with a schedule, and tokens of a block may be
  /// replaced until a pass changes nothing (LLaDA2.1, Bie et al. 2026). canvas: no masks; passes
  /// replace a canvas of random tokens (sample/canvas.h).
  enum class Rule : uint8_t { steps, threshold, factor, hierarchy, credit, edit, canvas };

  Rule rule = Rule::threshold;
  int steps = 0;  ///< commits per block; 0: no schedule
  double threshold = 0.9, factor = 1, low = 0.4;
  double alpha = 0.7, gamma = 0.2, beta = 0.8;  ///< credit
  double editing = 0.5;                         ///< edit: confidence to replace a token
  int posts = 16;                    ///< edit: limit of passes over a block without original masks
  bool commit_last_failing = false;  ///< factor, as in the published program
  CachePolicy cache{KvCache::none};  ///< not automatic
  StopAtEos stop = StopAtEos::none;
  int block = 32;  ///< tokens
  /// Passes as in the published programs: separate passes encode the prompt and finished blocks,
  /// and a last block is filled beyond the requested length. Otherwise a block's first pass also
  /// encodes the tokens before the block, with the same numbers.
  bool as_published = false;
  double temperature = 0;
  int64_t top_k = 0;  ///< draw among the likeliest tokens; 0: among all
  double top_p = 1;   ///< draw among the fewest tokens of this probability (Holtzman et al. 2020)
  /// Divides a positive logit, and multiplies a negative logit, of a token found elsewhere in
  /// prompt or answer (CTRL, Keskar et al. 2019; ends of text are exempt). Affects all inputs of a
  /// rule: choice and confidence.
  double repetition_penalty = 1;
  uint64_t seed = 0;

  CanvasRule canvas{};  ///< canvas

  bool denoises() const { return rule == Rule::canvas; }
  /// Whether a pass may replace a token of an earlier pass.
  bool edits() const { return rule == Rule::edit || denoises(); }
};

/// Limit of passes over a block without masks, because tokens may edit one another forever.
inline constexpr int kMostPosts = 1000;

/// Token ids with a meaning for the decoder.
struct SpecialIds {
  int32_t mask = 0;
  std::vector<int32_t> ends{};      ///< end of text
  int32_t remove = -1, split = -1;  ///< for models that edit the length of a block; -1: others

  bool edits_length() const { return remove >= 0; }
};

/// Reads "steps:N", "threshold:T", "factor:F[,upstream]", "hierarchy:T,LOW",
/// "credit:T[,alpha,gamma,beta]", "edit:T,E[,POSTS]", "edit:quality", "edit:speed" or
/// "canvas[:NAME=VALUE,...]" into a policy. Throws Error(usage) naming the invalid part.
void read_decode(const std::string& text, DecodingPolicy& policy);
/// Throws Error(usage) for options that contradict each other or the kind of model.
void check_policy(const DecodingPolicy& policy, bool block_causal);

}  // namespace tessera::sample
