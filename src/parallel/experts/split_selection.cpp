#include "parallel/experts/split_selection.h"

#include "comm/collectives.h"
#include "nn/local.h"

namespace tessera::parallel {

using tensor::Tensor;

void SummedVotes::sum(std::span<int64_t> values) { comm::sum(group_, values, {"votes", -1}); }
void SummedVotes::max(std::span<int64_t> values) { comm::max(group_, values, {"votes", -1}); }

Tensor SplitSelectiveExperts::run(int site, const Tensor& tokens, const ops::Routing& routing,
                                  const nn::ExpertBank& bank) {
  std::vector<int32_t> pairs;
  const Tensor ids = routing.ids.to(tensor::Device::cpu);
  const int32_t* id = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (id[i] >= 0) pairs.push_back(static_cast<int32_t>(i));
  ExpertFlight flight = exchange_.dispatch(site, tokens, ids, pairs, bank);
  const Tensor shared = nn::shared_expert(tokens, *bank);  // while rows travel
  exchange_.compute(flight);
  const Tensor rows = Tensor::zeros({ids.elements(), tokens.size(1)}, tokens.dtype(),
                                    tokens.device(), tensor::MemoryClass::buffers);
  exchange_.finish(flight, rows);
  return ops::combine_rows(rows, routing.weights, shared);
}

}  // namespace tessera::parallel
