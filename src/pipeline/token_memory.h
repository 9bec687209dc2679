#pragma once

#include <string>
#include <vector>

#include "pipeline/memory_plan.h"

namespace tessera::pipeline {

/// A run of a language model as memory sees it: tokens of each sequence, prompt and answer, and how
/// many of each sequence a pass decides.
struct TokenRun {
  std::vector<int64_t> lengths;
  int64_t decided = 0;
  int block = 0;
};

/// What it takes on this process, found on meta; `flops` are those of a pass over all tokens.
struct TokenNeed : Need {
  std::vector<Inspection::Rank> ranks;
  int64_t kv = 0;  ///< keys and values; part of the activations
  int64_t parameters = 0;
  double flops = 0;
};
TokenNeed token_need(const ModelState& state, const TokenRun& run);

/// Why a run does not fit into the machine's memory or RunOptions::memory_budget, and what would;
/// "" if it fits. Reads no weight.
std::string token_problem(const ModelState& state, const TokenNeed& need);
/// Throws Error(memory) with it. Of runs that are no larger than one that fits nothing is asked.
void plan_tokens(ModelState& state, const TokenRun& run);

}  // namespace tessera::pipeline
