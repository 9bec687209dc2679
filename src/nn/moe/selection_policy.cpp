#include "nn/moe/selection_policy.h"

#include <algorithm>
#include <iterator>

#include "nn/moe/expert_selection.h"
#include "ops/selection.h"

namespace tessera::nn {
namespace {

// A sequence's group is its place among the restricted sequences, whichever of them this rank sees.
std::vector<int32_t> groups_of(const Segments& body, const std::set<int>& restricted, bool batch) {
  std::vector<int32_t> groups;
  for (const Segment& s : body) {
    const auto held = restricted.find(s.sequence);
    const auto place = static_cast<int32_t>(std::distance(restricted.begin(), held));
    const int32_t group = held == restricted.end() ? -1 : batch ? 0 : place;
    groups.insert(groups.end(), static_cast<size_t>(s.ids.size()), group);
  }
  return groups;
}

}  // namespace

ops::Routing SelectionPolicy::choose(const MoeCall& call, const Tensor& tokens,
                                     const Tensor& logits,
                                     const ops::RoutingOptions& router) const {
  const std::vector<int32_t> groups = groups_of(call.view.body, restricted_, rule_.batch);
  const int sequences = static_cast<int>(restricted_.size());
  SelectionScope scope{
      groups, {}, call.view.peers, rule_.batch ? std::min(1, sequences) : sequences};
  if (rule_.method == SelectionRule::Method::mc) scope.importance = ops::magnitudes(tokens);
  return select_experts(logits, router, rule_, scope);
}

}  // namespace tessera::nn
