#include "parallel/tensor/narrow_experts.h"

#include "comm/collectives.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

void OrderedReduce::sum(Tensor& x) {
  x = comm::sum(group_, x.contiguous(), {"reduce", -1});
  group_.advance();
}

Tensor NarrowExperts::run(const nn::MoeCall& call, const Tensor& tokens, const nn::Gate& gate,
                          const nn::ExpertWeights& weights, nn::MoeLog& log) {
  const ops::Routing routing = gate(tokens);
  log.add(call, routing.ids, weights.experts());
  const Tensor wide = ops::cast(tokens, tensor::DType::f32);
  const Tensor rows = ops::expert_rows(wide, routing, *weights.routed);
  log.show({call, tokens, gate, weights, routing, rows});
  Tensor sum = ops::combine_rows(rows, routing.weights, weights.shared_rows(wide));
  reduce_.sum(sum);
  return ops::cast(sum, tokens.dtype());
}

}  // namespace tessera::parallel
