#pragma once

#include "comm/communicator.h"
#include "nn/moe/backend.h"

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
class NarrowExperts final : public nn::ExpertBackend {
 public:
  /// `reduce` outlives this.
  explicit NarrowExperts(nn::Reduce& reduce) : reduce_(reduce) {}
  nn::Tensor run(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, nn::MoeLog& log) override;

 private:
  nn::Reduce& reduce_;
};

}  // namespace tessera::parallel
