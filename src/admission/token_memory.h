#pragma once

#include <string>
#include <vector>

#include "admission/memory_plan.h"
#include "completion/token_run.h"

namespace tessera::admission {

/// Which passes are rehearsed: those that can be the largest, with what all do by them, or all.
enum class Passes { largest, all };
/// Its passes on a stage: over all tokens, or the first and one of each block. The work is the mean
/// of those that were rehearsed. Where ranks read experts each is foreseen as if all tokens chose
/// its, so that nothing comes on top.
Rehearsal rehearse_tokens(const runtime::ModelState& state, const RunOptions& options,
                          const completion::TokenRun& run, Passes which = Passes::largest);

/// What a run takes, in the way in which it fits into the machine's memory or
/// RunOptions::memory_budget.
struct TokenFit {
  Rehearsal need;
  std::string problem{};  ///< why it does not fit, and what would; "": it fits
  std::string note{};     ///< that it reads experts from the folder, and how many stay
};
/// Of a run that does not fit with all its experts, `run.experts` becomes as many as do, but at
/// least those that the tokens of one pass can go to in a layer. Reads no weight.
TokenFit fit_tokens(const runtime::ModelState& state, completion::TokenRun& run);
/// The same for a run: throws Error(memory) with the problem, gives the note. Of runs that are in
/// no way larger than the last one that fits whole nothing is asked. `at_work` takes what the run
/// does, or throws as take_room().
std::string plan_tokens(runtime::ModelState& state, completion::TokenRun& run,
                        runtime::AtWork* at_work = nullptr);

}  // namespace tessera::admission
