#include "parallel/tensor/narrow_experts.h"

#include "comm/collectives.h"
#include "nn/local.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

void OrderedReduce::sum(Tensor& x) {
  x = comm::sum(group_, x.contiguous(), {"reduce", -1});
  group_.advance();
}

Tensor NarrowExperts::run(int, const Tensor& tokens, const ops::Routing& routing,
                          const nn::ExpertBank& bank) {
  const Tensor wide = ops::cast(tokens, tensor::DType::f32);
  Tensor sum = ops::combine_rows(ops::expert_rows(wide, routing, bank->routed), routing.weights,
                                 nn::shared_expert(wide, *bank));
  reduce_.sum(sum);
  return ops::cast(sum, tokens.dtype());
}

}  // namespace tessera::parallel
