#pragma once

#include "ops/experts.h"

namespace tessera::nn {

/// The gate of an MoE layer: scores in f32 for any activation dtype.
struct Router {
  ops::Weight weight;  ///< f32 [experts, hidden]
  ops::RoutingOptions options;
  int block = 0;  ///< number in the model, for messages
  /// [tokens, hidden]: the router's own input, unless equal to the experts' input; may be
  /// undefined.
  tensor::Tensor features{};

  /// Input of the router for the experts' input `tokens`, all tokens of a call.
  tensor::Tensor input(const tensor::Tensor& tokens) const {
    return features.defined() ? features : tokens;
  }
  /// tokens [tokens, hidden] -> logits f32 [tokens, experts]. Throws Error(model) on the cpu for
  /// NaN and infinity, because such values would silently choose no expert.
  tensor::Tensor logits(const tensor::Tensor& tokens) const;
  /// logits, then the policy.
  ops::Routing operator()(const tensor::Tensor& tokens) const;
};

}  // namespace tessera::nn
