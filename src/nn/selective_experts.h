#pragma once

#include <set>
#include <utility>
#include <vector>

#include "nn/expert_selection.h"
#include "nn/seams.h"

namespace tessera::nn {

/// Experts on this rank under a selection rule, which holds for one request. The tokens of one
/// sequence share a coreset (or all of them together), whatever other sequences are in the pass.
class SelectiveExperts : public Experts {
 public:
  explicit SelectiveExperts(const SelectionRule& rule) : rule_(rule) {}

  /// Rows whose tokens are under the rule from now on; the others use the model's router.
  void restrict_to(std::set<int> rows) { restricted_ = std::move(rows); }

  /// mc ranks tokens by the sum of the magnitudes of what the router sees.
  Tensor apply(int site, const TokenView& view, const Tensor& tokens, const Router& router,
               const ExpertBank& bank) override;

  /// Experts of a layer that a row's tokens went to.
  struct Use {
    int site = 0, row = 0;
    int64_t tokens = 0, distinct = 0;
  };
  /// What the passes since the last call used, in order of site; forgets it.
  std::vector<Use> take_uses() { return std::exchange(uses_, {}); }
  /// Distinct experts of all rows together, summed over layers and passes: weights that were read.
  int64_t experts_read() const { return experts_read_; }

 private:
  void note(int site, const TokenView& view, const ops::Routing& routing, size_t experts);

  SelectionRule rule_;
  std::set<int> restricted_;
  std::vector<Use> uses_;
  int64_t experts_read_ = 0;
};

}  // namespace tessera::nn
