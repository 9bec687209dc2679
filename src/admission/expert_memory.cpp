#include "admission/expert_memory.h"

#include <algorithm>

#include "cluster/agree.h"
#include "completion/streamed_experts.h"

namespace tessera::admission {

ExpertMemory::ExpertMemory(const runtime::ModelState& state, const RunOptions& options)
    : options_(options), each_(completion::expert_bytes(state).packed) {
  const nn::Geometry geometry = state.language->geometry(runtime::dtype_of(options));
  for (int r = 0; r < options.plan.world(); ++r)
    has_.push_back(completion::all_experts(options.plan, geometry, r));
}

int64_t ExpertMemory::most() const { return *std::ranges::max_element(has_); }

int64_t ExpertMemory::bytes(int64_t limit) const {
  std::vector<int64_t> ranks;
  for (const int64_t owned : has_) ranks.push_back(std::min(owned, limit) * each_);
  return cluster::Ranks::of(options_).bytes_here(ranks);
}

DryRun ExpertMemory::beside(DryRun others, int64_t limit) const {
  for (size_t r = 0; r < has_.size(); ++r)
    for (int64_t* sum : {&others.ranks[r].weights, &others.ranks[r].total})
      *sum += std::min(has_[r], limit) * each_;
  others.process += bytes(limit);
  others.weights += bytes(limit);
  return others;
}

}  // namespace tessera::admission
