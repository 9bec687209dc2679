#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Which experts each token goes to: ids i32 [tokens, k] in falling order of score (ties: lowest
/// index; -1: no expert), weights f32 [tokens, k].
struct Routing {
  Tensor ids, weights;
};

/// How router logits become a routing.
struct RoutingOptions {
  enum class Score : uint8_t { softmax, sigmoid } score = Score::softmax;
  int top_k = 1;
  bool renormalise = false;  ///< weights divided by their sum over the k chosen
  float scale = 1;           ///< applied last
  Tensor bias{};  ///< f32 [experts], added for ranking only (sigmoid routers); may be undefined
  int groups = 1, top_groups = 1;  ///< keep the best groups (sum of their two best ranked values)
};

/// logits f32 [tokens, experts] -> Routing. On meta: shapes only.
Routing route(const Tensor& logits, const RoutingOptions& options);

/// Steps of route() for one token, for policies that stand between scores and choice.
/// logits [experts] -> scores (softmax or sigmoid) and what experts are ranked by (logits; sigmoid:
/// scores + bias). Both spans hold as many floats as there are experts.
void router_scores(const float* logits, const RoutingOptions& options, std::span<float> score,
                   std::span<float> rank);
/// Ranks outside the best `top_groups` of `groups` become -inf. A group is worth the sum of its up
/// to two best members; one without members (all -inf) stays closed. Ties: the lowest index.
void limit_groups(std::span<float> rank, int groups, int top_groups);
/// Index of the largest value that is not -inf, the lowest index of equals; -1 if there is none.
int64_t best_ranked(std::span<const float> rank);

}  // namespace tessera::ops
