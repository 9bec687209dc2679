#pragma once

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "nn/moe/policy.h"
#include "nn/moe/selection_rule.h"

namespace tessera::nn {

/// Of a sequence.
inline constexpr Range kAllTokens{0, std::numeric_limits<int64_t>::max()};

/// A selection rule, which holds for one request. The tokens of one sequence share a coreset (or
/// all of them together), whatever other sequences are in the pass, and whoever holds them.
class SelectionPolicy final : public ExpertPolicy {
 public:
  explicit SelectionPolicy(const SelectionRule& rule) : rule_(rule) {}

  /// Runs of tokens by sequence, rising, that are under the rule from now on; the others use the
  /// model's router.
  void restrict_to(std::map<int, std::vector<Range>> tokens) { restricted_ = std::move(tokens); }
  /// The same for one run of each sequence.
  void restrict_to(const std::map<int, Range>& tokens);

  /// mc ranks tokens by the sum of the magnitudes of what the router sees.
  ops::Routing choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                      const ops::RoutingOptions& router) const override;

 private:
  SelectionRule rule_;
  std::map<int, std::vector<Range>> restricted_;
};

}  // namespace tessera::nn
