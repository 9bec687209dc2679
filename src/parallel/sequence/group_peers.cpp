#include "parallel/sequence/group_peers.h"

#include "comm/collectives.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

void GroupPeers::sum(std::span<int64_t> values) { comm::all_reduce(group_, values, {"votes", -1}); }
void GroupPeers::max(std::span<int64_t> values) {
  comm::all_reduce_max(group_, values, {"votes", -1});
}

tensor::Tensor GroupPeers::gather(const tensor::Tensor& own_rows) {
  return ops::concat_rows(comm::all_gather(group_, own_rows.contiguous(), {"scores", -1}).wait());
}

}  // namespace tessera::parallel
