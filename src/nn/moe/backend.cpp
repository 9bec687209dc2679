#include "nn/moe/backend.h"

namespace tessera::nn {

Tensor LocalBackend::run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
                         const ExpertWeights& weights, MoeLog& log) {
  const ops::Routing routing = gate(tokens);
  log.add(call, routing.ids, weights.experts());
  const Tensor shared = weights.shared_rows(tokens);
  const Tensor rows = ops::expert_rows(tokens, routing, *weights.routed);
  log.show({call, tokens, gate, weights, routing, rows});
  return ops::combine_rows(rows, routing.weights, shared);
}

}  // namespace tessera::nn
