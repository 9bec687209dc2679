#include "parallel/sequence/displaced_kv.h"

#include <utility>

#include "base/fail.h"
#include "ops/attention.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

DisplacedKv::DisplacedKv(const nn::Geometry& geometry, comm::Communicator& group,
                         const Share& share)
    : geometry_(geometry), group_(group), share_(share) {
  for (const nn::AttentionSite& site : geometry.attention)
    require(!site.joint && site.causal_block == 0, ErrorCode::plan,
            "distrifusion is built for models whose attention sees picture tokens only");
}

// part [rows * tokens of that rank, 2 * width]
void DisplacedKv::write(Site& site, int rank, const Tensor& part) const {
  const nn::Range theirs = nn::split({0, share_.all_tokens}, group_.size(), rank);
  const int64_t rows = share_.rows();
  require(part.rank() == 2 && part.size(0) == rows * theirs.size() &&
              part.size(1) == site.slots.size(1),
          ErrorCode::rank, "rank {} sent keys and values of {}, expected [{}, {}]", rank,
          part.shape().str(), rows * theirs.size(), site.slots.size(1));
  for (int64_t row = 0; row < rows; ++row) {
    const Tensor from = part.slice(0, row * theirs.size(), (row + 1) * theirs.size());
    const int64_t at = row * share_.all_tokens + theirs.begin;
    tensor::copy_into(site.slots.slice(0, at, at + theirs.size()), from);
  }
}

void DisplacedKv::commit(Site& site) {
  if (!site.pending) return;
  const std::vector<Tensor> parts = site.arriving.wait();
  for (int r = 0; r < group_.size(); ++r)
    if (r != group_.rank()) write(site, r, parts[static_cast<size_t>(r)]);
  site.pending = false;
}

Tensor DisplacedKv::attend(int index, const nn::TokenView&, const nn::Heads& body) {
  const nn::AttentionSite& shape = geometry_.attention.at(static_cast<size_t>(index));
  Site& site = sites_[index];
  const int64_t width = body.k.size(1), rows = share_.rows(), mine = share_.tokens.size();
  const Tensor own = ops::concat_columns({body.k, body.v});
  if (!site.slots.defined())
    site.slots = Tensor::empty({rows * share_.all_tokens, 2 * width}, own.dtype(), own.device(),
                               tensor::MemoryClass::kv);
  commit(site);  // of the step before
  if (step_.fresh || !step_.next_fresh) {
    site.arriving = comm::all_gather(group_, own, {"keys and values", shape.block});
    site.pending = true;
  }
  if (step_.fresh) commit(site);
  write(site, group_.rank(), own);
  std::vector<ops::AttentionSpan> spans;
  for (int64_t row = 0; row < rows; ++row)
    spans.push_back(
        {row * mine, (row + 1) * mine, row * share_.all_tokens, (row + 1) * share_.all_tokens});
  return ops::attention(body.q, site.slots.slice(1, 0, width),
                        site.slots.slice(1, width, 2 * width), shape.heads, shape.kv_heads, spans);
}

}  // namespace tessera::parallel
