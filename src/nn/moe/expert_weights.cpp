#include "nn/moe/expert_weights.h"

namespace tessera::nn {

tensor::Tensor ExpertWeights::shared_rows(const tensor::Tensor& tokens) const {
  if (!shared.gate_up) return {};
  const tensor::Tensor inner =
      ops::matmul(tokens, shared.gate_up, {.activation = ops::Activation::swiglu});
  return ops::matmul(inner, shared.down);
}

}  // namespace tessera::nn
