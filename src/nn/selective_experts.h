#pragma once

#include <map>
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
  std::vector<Use> take_uses();
  /// Distinct experts of all rows together, summed over layers and passes: weights that were read.
  int64_t experts_read();

 protected:
  /// Where my tokens stand among those of all ranks.
  struct Place {
    SelectionPeers* peers = nullptr;  ///< null: all tokens are here
    int64_t first = 0, tokens = 0;
  };
  virtual Place place() const { return {}; }
  /// The experts of a routing: routed and shared. Calls of all ranks are alike.
  virtual Tensor run(int site, const Tensor& tokens, const ops::Routing& routing,
                     const ExpertBank& bank);

 private:
  struct Note {  // of one call and row: my tokens, and whether each expert got any
    int call = 0, site = 0, row = 0;
    std::vector<int64_t> counts;  // tokens, then flags by expert
  };
  void note(int site, const TokenView& view, const ops::Routing& routing, size_t experts);
  void settle();

  SelectionRule rule_;
  std::set<int> restricted_;
  std::vector<Note> notes_;
  std::vector<Use> uses_;
  int calls_ = 0;
  int64_t experts_read_ = 0;
};

}  // namespace tessera::nn
