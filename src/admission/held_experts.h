#pragma once

#include <vector>

#include "admission/rehearse.h"

namespace tessera::admission {

/// What the ranks of a plan hold of experts that are read while they run.
class HeldExperts {
 public:
  HeldExperts(const runtime::ModelState& state, const RunOptions& options);
  /// That the rank with most of them has, in all layers.
  int64_t most() const;
  /// Of this process, if each rank keeps so many at most.
  int64_t bytes(int64_t kept) const;
  /// So many, too, beside what a run takes without them.
  Rehearsal beside(Rehearsal others, int64_t kept) const;

 private:
  const RunOptions& options_;
  const int64_t each_;
  std::vector<int64_t> has_;  // by rank
};

}  // namespace tessera::admission
