#include "nn/moe/expert_weights.h"

namespace tessera::nn {

ops::Expert load_expert(const Weights& weights, const std::string& name, int64_t inner,
                        int64_t hidden, ops::DType dtype, ops::Activation activation) {
  const Cut columns = Split::outputs({{inner}}).of(weights.shard()),
            rows = Split::inputs({{inner}}).of(weights.shard());
  return {weights.paired(name + "gate_proj.weight", name + "up_proj.weight", inner, hidden, dtype,
                         columns),
          weights.matrix(name + "down_proj.weight", hidden, inner, dtype, rows), activation};
}

tensor::Tensor ExpertWeights::shared_rows(const tensor::Tensor& tokens) const {
  if (!shared.up) return {};
  const tensor::Tensor inner =
      ops::matmul(tokens, shared.up, {.bias = shared.up_bias, .activation = shared.activation});
  return ops::matmul(inner, shared.down, {.bias = shared.down_bias});
}

}  // namespace tessera::nn
