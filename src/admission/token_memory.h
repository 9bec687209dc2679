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
Rehearsal rehearse_tokens(const runtime::ModelState& state, const RunOptions& options,
                          const completion::TokenRun& run, Passes which = Passes::largest);

/// The memory of a run within the machine's memory or
/// RunOptions::memory_budget.
struct TokenFit {
  Rehearsal need;
  std::string problem{};  ///< reason and remedy; "": fits
  std::string note{};     ///< the read of experts, and the resident number
};
/// For a run above the limit with all experts, sets `run.experts` to the fitting number, but at
/// least to the experts of a pass in a layer. Reads no weight.
TokenFit fit_tokens(const runtime::ModelState& state, completion::TokenRun& run);
/// The same for a run: throws Error(memory) with the problem, gives the note. Skips the check for
/// runs no larger than the last fitting run. `at_work` reserves the memory, or throws as
/// take_room().
std::string plan_tokens(runtime::ModelState& state, completion::TokenRun& run,
                        runtime::AtWork* at_work = nullptr);

}  // namespace tessera::admission
