#pragma once

#include "comm/communicator.h"
#include "nn/selective_experts.h"

namespace tessera::parallel {

/// Sums f32 products over a group in the order of its ranks: the same bits on each of them.
class OrderedReduce : public nn::Reduce {
 public:
  explicit OrderedReduce(comm::Communicator& group) : group_(group) {}
  void sum(nn::Tensor& x) override;

 private:
  comm::Communicator& group_;
};

/// Tensor parallelism of experts: every rank has all tokens and a slice of each expert's width.
/// Rows are weighed and added in f32 before the one sum over ranks, which is then rounded.
class NarrowExperts : public nn::SelectiveExperts {
 public:
  /// `reduce` outlives this.
  NarrowExperts(const nn::SelectionRule& rule, nn::Reduce& reduce)
      : SelectiveExperts(rule), reduce_(reduce) {}

 protected:
  nn::Tensor run(int site, const nn::Tensor& tokens, const ops::Routing& routing,
                 const nn::ExpertBank& bank) override;

 private:
  nn::Reduce& reduce_;
};

}  // namespace tessera::parallel
