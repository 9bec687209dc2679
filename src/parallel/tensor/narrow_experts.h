#pragma once

#include <string>
#include <vector>

#include "nn/moe/backend.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Reasons against tensor= on a model, one sentence each; empty: valid.
std::vector<std::string> tensor_problems(const Plan& plan, const nn::Geometry& geometry);

/// Tensor parallelism of experts: every rank has all tokens and a slice of each expert's width.
/// Rows are weighted and added in f32 before a single sum over ranks, then rounded.
class NarrowExperts final : public nn::ExpertBackend {
 public:
  /// `reduce` must outlive this object.
  explicit NarrowExperts(nn::Reduce& reduce) : reduce_(reduce) {}
  nn::Tensor run(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, nn::MoeLog& log) override;

 private:
  nn::Reduce& reduce_;
};

}  // namespace tessera::parallel
