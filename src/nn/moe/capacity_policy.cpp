#include "nn/moe/capacity_policy.h"

#include <vector>

namespace tessera::nn {

ops::Routing CapacityPolicy::choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                                    const ops::RoutingOptions& router) const {
  ops::Routing routing = chooses_->choose(call, tokens, logits, router);
  SequencePeers* const peers = call.view.peers;
  if (routing.ids.is_meta()) {
    if (peers) peers->gather(routing.ids);
    return routing;
  }
  const ops::Routing result = ops::host_routing(routing, logits.size(1));
  // Tensors given to others must not change: all ids are copied.
  const Tensor all = peers ? peers->gather(result.ids) : result.ids;
  const int64_t first = peers ? peers->first() : 0, end = first + result.ids.size(0);
  std::vector<int64_t> counts(static_cast<size_t>(logits.size(1)));
  for (int64_t t = 0; t < end; ++t)
    for (int64_t j = 0; j < all.size(1); ++j) {
      int32_t& expert = all.row<int32_t>(t)[j];
      if (expert < 0 || counts[static_cast<size_t>(expert)]++ < capacity_ || t < first) continue;
      expert = -1;
      result.weights.row<float>(t - first)[j] = 0;
    }
  return {all.slice(0, first, end).to(logits.device()), result.weights.to(logits.device())};
}

}  // namespace tessera::nn
