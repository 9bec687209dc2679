#include "nn/moe/backend.h"

#include "nn/moe/expert_cache.h"

namespace tessera::nn {

Tensor LocalBackend::run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
                         const ExpertWeights& weights, MoeLog& log) {
  const ops::Routing routing = gate(tokens);
  log.add(call, routing.ids, weights.experts());
  const Tensor shared = weights.shared_rows(tokens);
  ExpertWeights here = weights;
  if (cache_)
    here.routed = std::make_shared<const std::vector<ops::Expert>>(
        cache_->bank(call.site, weights.experts(), call.view.body, routing.ids));
  const Tensor rows = ops::expert_rows(tokens, routing, *here.routed);
  log.show({call, tokens, gate, here, routing, rows});
  return ops::combine_rows(rows, routing.weights, shared);
}

}  // namespace tessera::nn
