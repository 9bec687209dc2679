#include "parallel/experts/split_selection.h"

#include <cstring>

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
  const std::vector<Tensor> parts = exchange_.finish(flight);
  if (tokens.device() != tensor::Device::cpu) {
    std::vector<int32_t> places(static_cast<size_t>(ids.elements()),
                                static_cast<int32_t>(flight.pairs.size()));  // zeros
    for (size_t i = 0; i < flight.pairs.size(); ++i)
      places[static_cast<size_t>(flight.pairs[i])] = static_cast<int32_t>(i);
    return ops::combine_rows(rows_by_place(parts, places), routing.weights, shared);
  }
  Tensor rows = Tensor::zeros({routing.ids.elements(), tokens.size(1)}, tokens.dtype(),
                              tokens.device(), tensor::MemoryClass::buffers);
  const auto bytes = tokens.size(1) * tensor::size_of(tokens.dtype());
  for (size_t r = 0; r < parts.size(); ++r)
    for (int64_t i = 0; i < parts[r].size(0); ++i) {
      const auto* from = static_cast<const std::byte*>(parts[r].slice(0, i, i + 1).raw());
      const int32_t pair = flight.pairs[static_cast<size_t>(flight.begin[r] + i)];
      std::memcpy(static_cast<std::byte*>(rows.raw()) + pair * bytes, from,
                  static_cast<size_t>(bytes));
    }
  return ops::combine_rows(rows, routing.weights, shared);
}

}  // namespace tessera::parallel
