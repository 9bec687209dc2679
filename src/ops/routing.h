#pragma once

#include <cstdint>
#include <span>

#include "kernels/route_token.h"
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

/// Throws Error(usage) for logits or options that route() does not take.
void check_route(const Tensor& logits, const RoutingOptions& options);

using kernels::TokenScores;
/// route() for one token: logits [experts] -> ids and weights [top_k].
void route_token(const float* logits, const RoutingOptions& options, TokenScores& scores,
                 int32_t* ids, float* weights);

/// Steps of route() for one token, for policies that stand between scores and choice.
/// What experts are ranked by: logits; sigmoid routers: scores + bias.
void router_ranks(const float* logits, const float* score, const RoutingOptions& options,
                  std::span<float> rank);
/// ids[0 .. k) = the k largest of rank + closed (0 or -inf by expert; null: none closed), falling,
/// equals by index; -1 where nothing above -inf is left.
void best_k(std::span<const float> rank, const float* closed, int k, int32_t* ids);
/// Ranks outside the best `top_groups` of `groups` become -inf. A group is worth the sum of its up
/// to two best members; one without members (all -inf) stays closed. Ties: the lowest index.
void limit_groups(std::span<float> rank, int groups, int top_groups);

}  // namespace tessera::ops
