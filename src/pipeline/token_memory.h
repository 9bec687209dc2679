#pragma once

#include <string>
#include <vector>

#include "nn/moe/selection_rule.h"
#include "pipeline/memory_plan.h"

namespace tessera::pipeline {

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
};

/// Which passes are rehearsed: those that can be the largest, with what all do by them, or all.
enum class Passes { largest, all };
/// Its passes on a stage: over all tokens, or the first and one of each block. The work is the mean
/// of those that were rehearsed.
Rehearsal rehearse_tokens(const ModelState& state, const RunOptions& options, const TokenRun& run,
                          Passes which = Passes::largest);

/// Why a run that was rehearsed does not fit into the machine's memory or
/// RunOptions::memory_budget, and what would; "" if it fits. Reads no weight.
std::string token_problem(const ModelState& state, const TokenRun& run, const Rehearsal& need);
/// Throws Error(memory) with it. Of runs that are in no way larger than the last one that fits
/// nothing is asked.
void plan_tokens(ModelState& state, const TokenRun& run);

}  // namespace tessera::pipeline
