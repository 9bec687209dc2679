#pragma once

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "nn/moe/policy.h"
#include "nn/moe/selection_rule.h"

namespace tessera::nn {

/// All ids of a sequence.
inline constexpr Range kAllTokens{0, std::numeric_limits<int64_t>::max()};

/// A selection rule for a request. The tokens of a sequence share a coreset (or all tokens
/// together), independent of other sequences in the pass and of the tokens' ranks.
class SelectionPolicy final : public ExpertPolicy {
 public:
  explicit SelectionPolicy(const SelectionRule& rule) : rule_(rule) {}

  /// Sets the runs of tokens under the rule, by sequence, rising; others use the model's
  /// router.
  void restrict_to(std::map<int, std::vector<Range>> tokens) { restricted_ = std::move(tokens); }
  /// The same for a single run of each sequence.
  void restrict_to(const std::map<int, Range>& tokens);

  /// mc ranks tokens by the sum of the magnitudes of the router's input.
  ops::Routing choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                      const ops::RoutingOptions& router) const override;

 private:
  SelectionRule rule_;
  std::map<int, std::vector<Range>> restricted_;
};

}  // namespace tessera::nn
