#pragma once

#include <cstdint>

#include "kernels/routing.h"
#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Experts of each token: ids i32 [tokens, k] in decreasing order of score (ties: lowest index; -1:
/// no expert), weights f32 [tokens, k].
struct Routing {
  Tensor ids, weights;
};

/// Options for routing from router logits.
struct RoutingOptions {
  enum class Score : uint8_t { softmax, sigmoid } score = Score::softmax;
  int top_k = 1;
  bool renormalise = false;  ///< weights divided by their sum over the k chosen
  float scale = 1;           ///< applied to all weights
  Tensor expert_scale{};     ///< f32 [experts], multiplies a weight last; may be undefined
  Tensor bias{};  ///< f32 [experts], added for ranking only (sigmoid routers); may be undefined
  int groups = 1, top_groups = 1;  ///< keep the best groups (sum of the two best ranked values)
};

/// logits f32 [tokens, experts] -> Routing. On meta: shapes only. `scores`, if given, receives the
/// softmax or sigmoid of the logits, f32 [tokens, experts].
Routing route(const Tensor& logits, const RoutingOptions& options, Tensor* scores = nullptr);

/// A routing in host memory. On meta a synthetic routing: the tokens of each slot are distributed
/// over the layer's experts by the scope's expert load.
Routing host_routing(Routing routing, int64_t experts);

/// Throws Error(usage) for logits or options that route() does not accept.
void check_route(const Tensor& logits, const RoutingOptions& options);

/// Kernel arguments for dense logits and routing options.
kernels::RouteArgs route_args(const Tensor& logits, const RoutingOptions& options);

}  // namespace tessera::ops
