#include "nn/selective_experts.h"

#include <algorithm>
#include <cmath>

#include "nn/local.h"

namespace tessera::nn {
namespace {

std::vector<int32_t> groups_of(const TokenView& view, const std::set<int>& restricted, bool batch) {
  std::vector<int32_t> groups;
  int32_t next = 0;
  for (const Segment& s : view.body) {
    const bool held = restricted.contains(s.row);
    const int32_t group = !held ? -1 : batch ? 0 : next++;
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

void SelectiveExperts::note(int site, const TokenView& view, const ops::Routing& routing,
                            size_t experts) {
  std::vector<bool> any(experts);
  int64_t token = 0;
  for (const Segment& s : view.body) {
    std::vector<bool> mine(experts);
    for (const int64_t end = token + s.ids.size(); token < end; ++token)
      for (int64_t j = 0; j < routing.ids.size(1); ++j)
        if (const int32_t e = routing.ids.row<int32_t>(token)[j]; e >= 0)
          mine[static_cast<size_t>(e)] = any[static_cast<size_t>(e)] = true;
    uses_.push_back({site, s.row, s.ids.size(), std::count(mine.begin(), mine.end(), true)});
  }
  experts_read_ += std::count(any.begin(), any.end(), true);
}

Tensor SelectiveExperts::apply(int site, const TokenView& view, const Tensor& tokens,
                               const Router& router, const ExpertBank& bank) {
  const Tensor logits = router.logits(tokens);
  const std::vector<int32_t> groups = groups_of(view, restricted_, rule_.batch);
  std::vector<float> importance;
  if (rule_.method == SelectionRule::Method::mc && !tokens.is_meta())
    importance = magnitudes(tokens);
  const ops::Routing routing = select_experts(logits, router.options, rule_, {groups, importance});
  if (!tokens.is_meta()) note(site, view, routing, bank->routed.size());
  return ops::experts(tokens, routing, bank->routed, shared_expert(tokens, *bank));
}

}  // namespace tessera::nn
