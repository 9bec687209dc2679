#include "parallel/sequence/displaced_kv.h"

#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

DisplacedKv::DisplacedKv(const nn::Geometry& geometry, std::vector<nn::Range> sequences,
                         comm::Communicator& group, std::vector<int> ranks,
                         const Partition& partition)
    : KvAttention(geometry, std::move(sequences)),
      group_(group),
      ranks_(std::move(ranks)),
      partition_(partition) {
  for (const nn::AttentionSite& site : geometry.attention)
    require(!site.joint, ErrorCode::plan,
            "keys and values that ranks send each other are those of the body, not of text");
}

void DisplacedKv::commit(int site) {
  const auto found = arriving_.find(site);
  if (found == arriving_.end()) return;
  auto [parts, step, patch] = std::move(found->second);
  arriving_.erase(found);
  const std::vector<Tensor> all = parts.wait();
  for (size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) == group_.rank()) continue;
    const nn::Segments theirs = partition_.view(ranks_[r], patch).body;
    const int64_t count = nn::token_count(theirs);
    require(all[r].rank() == 2 && all[r].size(0) == 2 * count, ErrorCode::rank,
            "layer {}: rank {} sent keys and values {} for {} tokens", site, r,
            all[r].shape().str(), count);
    write(site, theirs, all[r].slice(0, 0, count), all[r].slice(0, count, 2 * count), step);
  }
}

void DisplacedKv::keep(int site, const nn::TokenView& view, const nn::Qkv& body) {
  commit(site);  // of the step before
  if (step_.fresh || !step_.next_fresh)
    arriving_[site] = {comm::all_gather(group_, ops::concat_rows({body.k, body.v}),
                                        {"keys and values", site_of(site).block}),
                       step_.index, view.patch};
  if (step_.fresh) commit(site);
  write(site, view.body, body.k, body.v, step_.index);
}

}  // namespace tessera::parallel
