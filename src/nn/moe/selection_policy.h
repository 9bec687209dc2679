#pragma once

#include <set>
#include <utility>

#include "nn/moe/policy.h"
#include "nn/moe/selection_rule.h"

namespace tessera::nn {

/// A selection rule, which holds for one request. The tokens of one sequence share a coreset (or
/// all of them together), whatever other sequences are in the pass, and whoever holds them.
class SelectionPolicy final : public ExpertPolicy {
 public:
  explicit SelectionPolicy(const SelectionRule& rule) : rule_(rule) {}

  /// Sequences whose tokens are under the rule from now on; the others use the model's router.
  void restrict_to(std::set<int> sequences) { restricted_ = std::move(sequences); }

  /// mc ranks tokens by the sum of the magnitudes of what the router sees.
  ops::Routing choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                      const ops::RoutingOptions& router) const override;

 private:
  SelectionRule rule_;
  std::set<int> restricted_;
};

}  // namespace tessera::nn
