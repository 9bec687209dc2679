#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "nn/moe/backend.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Why tensor= cannot cut a model, one sentence each; empty: it can.
std::vector<std::string> tensor_problems(const Plan& plan, const nn::Geometry& geometry);

/// Sums over a group in the order of its ranks: each sums and finishes a run of rows, which the
/// others then get. Each sends (N - 1) / N of the sum in f32, and as much of what is finished.
class OrderedReduce : public nn::Reduce {
 public:
  explicit OrderedReduce(comm::Communicator& group) : group_(group) {}
  nn::Tensor sum(const nn::Tensor& part, const Finish& finish) override;

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
