#pragma once

#include <string>
#include <vector>

#include "nn/moe/backend.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Why tensor= cannot cut a model, one sentence each; empty: it can.
std::vector<std::string> tensor_problems(const Plan& plan, const nn::Geometry& geometry);

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
