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
  /// Of all layers together, routed experts that a rank has in memory at once, if it has so many,
  /// while others are read from the folder when tokens go to them; 0: all are, always.
  int64_t experts = 0;
};

/// Which passes are rehearsed: those that can be the largest, with what all do by them, or all.
enum class Passes { largest, all };
/// Its passes on a stage: over all tokens, or the first and one of each block. The work is the mean
/// of those that were rehearsed. Where ranks read experts each is foreseen as if all tokens chose
/// its, so that nothing comes on top.
Rehearsal rehearse_tokens(const ModelState& state, const RunOptions& options, const TokenRun& run,
                          Passes which = Passes::largest);

/// What a run takes, in the way in which it fits into the machine's memory or
/// RunOptions::memory_budget.
struct TokenFit {
  Rehearsal need;
  std::string problem{};  ///< why it does not fit, and what would; "": it fits
  std::string note{};     ///< that it reads experts from the folder, and how many stay
};
/// Of a run that does not fit with all its experts, `run.experts` becomes as many as do, but at
/// least those that the tokens of one pass can go to in a layer. Reads no weight.
TokenFit fit_tokens(const ModelState& state, TokenRun& run);
/// The same for a run: throws Error(memory) with the problem, gives the note. Of runs that are in
/// no way larger than the last one that fits whole nothing is asked. `at_work` takes what the run
/// does, or throws as take_room().
std::string plan_tokens(ModelState& state, TokenRun& run, AtWork* at_work = nullptr);

}  // namespace tessera::pipeline
