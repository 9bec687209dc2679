#include "parallel/sequence/displaced_kv.h"

#include <utility>

#include "base/fail.h"
#include "nn/positions.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

namespace {

// Copies, because the original rows may change.
Tensor copied(const Tensor& x, const std::vector<nn::Range>& rows) {
  const Tensor selection = nn::take_ranges(x, rows);
  const Tensor own = Tensor::empty(selection.shape(), selection.dtype(), selection.device());
  tensor::copy_into(own, selection);
  return own;
}

}  // namespace

DisplacedKv::DisplacedKv(const nn::Geometry& geometry, std::vector<nn::Range> sequences,
                         comm::Communicator* group, std::vector<int> ranks,
                         const Partition& partition, std::vector<nn::TokenView> shards)
    : KvAttention(geometry, std::move(sequences)),
      group_(group),
      ranks_(std::move(ranks)),
      partition_(partition),
      shards_(std::move(shards)) {}

void DisplacedKv::commit(int site) {
  const auto it = arrivals_.find(site);
  if (it == arrivals_.end()) return;
  auto [parts, step, patch] = std::move(it->second);
  arrivals_.erase(it);
  const std::vector<Tensor> messages = parts.wait();
  for (size_t r = 0; r < messages.size(); ++r) {
    if (static_cast<int>(r) == group_->rank()) continue;
    const nn::Segments peer_tokens =
        nn::tokens_of(partition_.view(ranks_[r], patch), site_of(site).joint);
    const int64_t count = nn::token_count(peer_tokens);
    require(messages[r].rank() == 2 && messages[r].size(0) == 2 * count, ErrorCode::rank,
            "layer {}: rank {} sent keys and values {} for {} tokens", site, r,
            messages[r].shape().str(), count);
    write(site, peer_tokens, messages[r].slice(0, 0, count), messages[r].slice(0, count, 2 * count),
          step);
  }
}

void DisplacedKv::exchange(int site, const nn::TokenView& view, const nn::Qkv& heads) {
  commit(site);  // from the step before
  if (!group_) return;
  if (step_.fresh || !step_.next_fresh)
    arrivals_[site] = {comm::all_gather(*group_, ops::concat_rows({heads.k, heads.v}),
                                        {"keys and values", site_of(site).block}),
                       step_.index, view.patch};
  if (step_.fresh) commit(site);
}

void DisplacedKv::keep(int site, const nn::TokenView& view, const nn::Qkv& heads) {
  exchange(site, view, heads);
  KvAttention::keep(site, view, heads);
}

Tensor DisplacedKv::seen_by(const nn::TokenView& shard, int site, const nn::TokenView& view,
                            const nn::Qkv& heads) {
  const bool joint = site_of(site).joint, text_queries = site_of(site).prefix_queries;
  const nn::Segments tokens = nn::tokens_of(shard, joint);
  std::vector<nn::Range> slots;  // slots of the table
  for (const nn::Segment& s : tokens)
    slots.push_back(this->slots().places(site, s.sequence, s.ids));
  const int before = this->slots().written(site, tokens.front().sequence, tokens.front().ids.begin);
  const auto [k, v] = this->slots().table(site);
  const Tensor old_k = copied(k, slots), old_v = copied(v, slots);
  const auto own_places = places_of(nn::tokens_of(view, joint), tokens);
  write(site, tokens, nn::take_ranges(heads.k, own_places), nn::take_ranges(heads.v, own_places),
        step_.index);
  const auto asking =
      places_of(nn::tokens_of(view, text_queries), nn::tokens_of(shard, text_queries));
  const Tensor out = seen(site, shard, nn::take_ranges(heads.q, asking));
  count_ages(site, shard);
  write(site, tokens, old_k, old_v, before);
  return out;
}

Tensor DisplacedKv::attend(int site, const nn::TokenView& view, const nn::Qkv& heads) {
  if (step_.fresh || shards_.size() < 2) return KvAttention::attend(site, view, heads);
  exchange(site, view, heads);
  const bool text_queries = site_of(site).prefix_queries;
  const Tensor out = Tensor::empty(heads.q.shape(), heads.q.dtype(), heads.q.device());
  for (const nn::TokenView& shard : shards_) {
    if (shard.sequences.empty()) continue;  // a rank may have no sample
    const Tensor part = seen_by(shard, site, view, heads);
    int64_t at = 0;
    for (const nn::Range& r :
         places_of(nn::tokens_of(view, text_queries), nn::tokens_of(shard, text_queries))) {
      tensor::copy_into(out.slice(0, r.begin, r.end), part.slice(0, at, at + r.size()));
      at += r.size();
    }
  }
  KvAttention::keep(site, view, heads);  // as read in the next step
  return out;
}

}  // namespace tessera::parallel
