#include "nn/moe/selection_policy.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "nn/moe/expert_selection.h"

namespace tessera::nn {
namespace {

// A row's group is its place among the restricted rows, whichever of them this rank sees.
std::vector<int32_t> groups_of(const Segments& body, const std::set<int>& restricted, bool batch) {
  std::vector<int32_t> groups;
  for (const Segment& s : body) {
    const auto held = restricted.find(s.row);
    const auto place = static_cast<int32_t>(std::distance(restricted.begin(), held));
    const int32_t group = held == restricted.end() ? -1 : batch ? 0 : place;
    groups.insert(groups.end(), static_cast<size_t>(s.ids.size()), group);
  }
  return groups;
}

std::vector<float> magnitudes(const Tensor& tokens) {
  std::vector<float> sums(static_cast<size_t>(tokens.size(0)));
  const std::vector<float> values = tokens.to_floats();
  const auto width = static_cast<size_t>(tokens.size(1));
  for (size_t i = 0; i < values.size(); ++i) sums[i / width] += std::abs(values[i]);
  return sums;
}

}  // namespace

ops::Routing SelectionPolicy::choose(const MoeCall& call, const Tensor& tokens,
                                     const Tensor& logits,
                                     const ops::RoutingOptions& router) const {
  const std::vector<int32_t> groups = groups_of(call.view.body, restricted_, rule_.batch);
  std::vector<float> importance;
  if (rule_.method == SelectionRule::Method::mc && !tokens.is_meta())
    importance = magnitudes(tokens);
  const int rows = static_cast<int>(restricted_.size());
  SelectionScope scope{groups, importance, call.view.peers, rule_.batch ? std::min(1, rows) : rows};
  if (scope.peers) {
    scope.first = scope.peers->first();
    scope.tokens = token_count(scope.peers->tokens());
  }
  return select_experts(logits, router, rule_, scope);
}

}  // namespace tessera::nn
