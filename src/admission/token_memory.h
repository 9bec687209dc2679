#pragma once

#include <string>
#include <vector>

#include "admission/memory_plan.h"
#include "completion/token_run.h"

namespace tessera::admission {

/// Passes of the dry run: the possibly largest, with the mean work, or all.
enum class Passes { largest, all };
/// The passes of a dry run: over all tokens, or the first and one of each block. Work is the mean
/// of the executed passes. With experts read on demand, each rank is predicted as if all tokens
/// chose its experts, so nothing exceeds the result.
DryRun dry_run_tokens(const runtime::ModelState& state, const RunOptions& options,
                      const completion::TokenRun& run, Passes passes = Passes::largest);

/// A run of a language model by its sizes alone.
struct TokenSketch {
  int prompts = 1;
  int64_t prompt = 0, answer = 0;  ///< tokens of each; 0: as usual for the model
};
/// Its dry run under the plan of the state's options: the ranks, and what each watched step stands
/// for.
struct TokenForecast {
  struct Pass {
    double count = 1;    ///< passes that do about as much
    bool fills = false;  ///< reads a prompt or a finished canvas into the cache, once
  };
  std::vector<Inspection::Rank> ranks;
  std::vector<Pass> passes;  ///< with one pass for each block or canvas
  int64_t prompt = 0, answer = 0;
  int block = 0;  ///< tokens of a block or canvas
  bool canvas = false;
};
/// Throws Error(plan) for a plan that cannot run, Error(usage) for more tokens than the model's
/// context.
TokenForecast predict_tokens(const runtime::ModelState& state, const TokenSketch& sketch);

/// The memory of a run within the machine's memory or
/// RunOptions::memory_budget.
struct TokenFit {
  DryRun need;
  std::string problem{};  ///< reason and remedy; "": fits
  std::string note{};     ///< the read of experts, and the resident number
};
/// For a run above the limit with all experts, sets `run.experts` to the fitting number, but at
/// least to the experts of a pass in a layer. Reads no weight.
TokenFit fit_tokens(const runtime::ModelState& state, completion::TokenRun& run);
/// The same for a run: throws Error(memory) with the problem, gives the note. Skips the check for
/// runs no larger than the last fitting run. `reservation` reserves the memory, or throws as
/// take_room().
std::string plan_tokens(runtime::ModelState& state, completion::TokenRun& run,
                        runtime::MemoryReservation* reservation = nullptr);

}  // namespace tessera::admission
