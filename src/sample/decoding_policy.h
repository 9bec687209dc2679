#pragma once

#include <cstdint>
#include <string>

#include "tessera/complete.h"

namespace tessera::sample {

/// How a masked diffusion model fills in its masks: which positions a pass commits, what it
/// computes again, when it ends. Greedy unless temperature > 0.
struct DecodingPolicy {
  /// steps: shares of a block's masks, most confident first (LLaDA, Nie et al. 2025); threshold:
  /// all of a confidence, with `steps` at least a share (LLaDA2); factor and the caches: Fast-dLLM
  /// (Wu et al. 2025); hierarchy: a best of every run of masks; credit: confidence that lasts
  /// counts more.
  enum class Rule : uint8_t { steps, threshold, factor, hierarchy, credit };

  Rule rule = Rule::threshold;
  int steps = 0;  ///< commits a block is cut into; 0: no schedule
  double threshold = 0.9, factor = 1, low = 0.4;
  double alpha = 0.7, gamma = 0.2, beta = 0.8;  ///< credit
  bool commit_last_failing = false;             ///< factor, as the published program
  CachePolicy cache{KvCache::none};             ///< not automatic
  StopAtEos stop = StopAtEos::none;
  int block = 32;  ///< tokens
  double temperature = 0;
  uint64_t seed = 0;
};

/// Reads "steps:N", "threshold:T", "factor:F[,upstream]", "hierarchy:T,LOW" or
/// "credit:T[,alpha,gamma,beta]" into a policy. Throws Error(usage) naming what does not fit.
void read_decode(const std::string& text, DecodingPolicy& policy);
/// Throws Error(usage) for options that contradict each other or the kind of model.
void check_policy(const DecodingPolicy& policy, bool block_causal);

}  // namespace tessera::sample
