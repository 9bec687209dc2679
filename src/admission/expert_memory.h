#pragma once

#include <vector>

#include "admission/dry_run.h"

namespace tessera::admission {

/// Experts held by the ranks of a plan when they read experts on demand.
class ExpertMemory {
 public:
  ExpertMemory(const runtime::ModelState& state, const RunOptions& options);
  /// Experts of the rank with the most, in all layers.
  int64_t most() const;
  /// Bytes of this process, with at most `limit` experts on each rank.
  int64_t bytes(int64_t limit) const;
  /// The prediction with at most `limit` experts besides the rest of a run.
  DryRun beside(DryRun others, int64_t limit) const;

 private:
  const RunOptions& options_;
  const int64_t each_;
  std::vector<int64_t> has_;  // by rank
};

}  // namespace tessera::admission
