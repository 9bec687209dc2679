#include "nn/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace tessera::nn {

KvCache::KvCache(const Geometry& geometry, std::vector<Range> sequences, Shard heads)
    : geometry_(geometry),
      sequences_(std::move(sequences)),
      heads_(heads),
      sites_(geometry.attention.size()) {
  for (auto* first : {&first_[0], &first_[1]}) first->push_back(0);
  for (const Range& sequence : sequences_) {
    require(sequence.begin <= 0 && sequence.end >= 0, ErrorCode::usage,
            "KvCache: a sequence of ids {} to {}; text ends at 0, where the body begins",
            sequence.begin, sequence.end);
    first_[0].push_back(first_[0].back() + sequence.end);
    first_[1].push_back(first_[1].back() + sequence.size());
  }
}

Range KvCache::ids(int site, int sequence) const {
  const Range& all = sequences_.at(static_cast<size_t>(sequence));
  return geometry_.attention.at(static_cast<size_t>(site)).joint ? all : Range{0, all.end};
}

std::pair<int, int> KvCache::heads(int site) const {
  const AttentionSite& at = geometry_.attention.at(static_cast<size_t>(site));
  const auto kv_heads =
      static_cast<int>(split({0, at.kv_heads}, heads_.count, heads_.index).size());
  return {kv_heads * (at.heads / at.kv_heads), kv_heads};
}

int64_t KvCache::place(int site, int sequence, int64_t id) const {
  const bool joint = geometry_.attention.at(static_cast<size_t>(site)).joint;
  return first_[joint].at(static_cast<size_t>(sequence)) + id - ids(site, sequence).begin;
}

void KvCache::make(int site, const Tensor& like) {
  Site& at = sites_[static_cast<size_t>(site)];
  if (at.k.defined()) return;
  const int64_t slots = first_[geometry_.attention.at(static_cast<size_t>(site)).joint].back();
  for (Tensor* x : {&at.k, &at.v})
    *x = Tensor::empty({slots, like.size(1)}, like.dtype(), like.device(), tensor::MemoryClass::kv);
  at.written.resize(static_cast<size_t>(slots), -1);
}

void KvCache::write(int site, const Segments& segments, const Tensor& k, const Tensor& v,
                    int step) {
  const int64_t width =
      int64_t{heads(site).second} * geometry_.attention[static_cast<size_t>(site)].head_dim;
  require(k.shape() == v.shape() && k.rank() == 2 && k.size(0) == token_count(segments) &&
              k.size(1) == width && k.dtype() == v.dtype(),
          ErrorCode::usage, "KvCache: keys {} and values {} for {} tokens of width {} at site {}",
          k.shape().str(), v.shape().str(), token_count(segments), width, site);
  make(site, k);
  Site& slots = sites_[static_cast<size_t>(site)];
  require(k.dtype() == slots.k.dtype(), ErrorCode::usage,
          "KvCache: site {} keeps {} and is given {}", site, name_of(slots.k.dtype()),
          name_of(k.dtype()));
  int64_t at = 0;
  for (const Segment& s : segments) {
    const Range range = ids(site, s.sequence);
    require(s.ids.begin >= range.begin && s.ids.end <= range.end, ErrorCode::usage,
            "KvCache: site {} is given ids {} to {} of sequence {}, which has {} to {}", site,
            s.ids.begin, s.ids.end, s.sequence, range.begin, range.end);
    const int64_t first = place(site, s.sequence, s.ids.begin), count = s.ids.size();
    tensor::copy_into(slots.k.slice(0, first, first + count), k.slice(0, at, at + count));
    tensor::copy_into(slots.v.slice(0, first, first + count), v.slice(0, at, at + count));
    std::fill_n(slots.written.begin() + first, count, step);
    at += count;
  }
}

std::pair<Tensor, Tensor> KvCache::table(int site) const {
  const Site& slots = sites_.at(static_cast<size_t>(site));
  return {slots.k, slots.v};
}

Range KvCache::places(int site, int sequence, Range ids) const {
  const Tensor& k = sites_.at(static_cast<size_t>(site)).k;
  const bool shape = k.defined() && k.is_meta();  // without data to read
  for (int64_t id = ids.begin; !shape && id < ids.end; ++id)
    require(written(site, sequence, id) >= 0, ErrorCode::usage,
            "KvCache: site {} reads token {} of sequence {}, which was never written", site, id,
            sequence);
  const int64_t first = place(site, sequence, ids.begin);
  return {first, first + ids.size()};
}

std::pair<Tensor, Tensor> KvCache::read(int site, int sequence, Range ids) const {
  const Range at = places(site, sequence, ids);
  const auto [k, v] = table(site);
  if (!k.defined()) return {};
  return {k.slice(0, at.begin, at.end), v.slice(0, at.begin, at.end)};
}

int KvCache::written(int site, int sequence, int64_t id) const {
  const Site& slots = sites_.at(static_cast<size_t>(site));
  if (!slots.k.defined() || sequence < 0 || sequence >= static_cast<int>(sequences_.size()))
    return -1;
  const Range range = ids(site, sequence);
  if (id < range.begin || id >= range.end) return -1;
  return slots.written[static_cast<size_t>(place(site, sequence, id))];
}

std::span<const int> KvCache::written(int site, int sequence) const {
  const Site& slots = sites_.at(static_cast<size_t>(site));
  if (!slots.k.defined()) return {};
  const Range range = ids(site, sequence);
  return std::span(slots.written)
      .subspan(static_cast<size_t>(place(site, sequence, range.begin)),
               static_cast<size_t>(range.size()));
}

int64_t KvCache::bytes() const {
  int64_t total = 0;
  for (const Site& slots : sites_)
    if (slots.k.defined()) total += slots.k.bytes() + slots.v.bytes();
  return total;
}

void KvCache::renew(std::vector<Range> sequences) {
  KvCache next(geometry_, std::move(sequences), heads_);
  require(next.sequences_.size() >= sequences_.size(), ErrorCode::usage,
          "KvCache: {} sequences in place of {}", next.sequences_.size(), sequences_.size());
  for (size_t i = 0; i < sequences_.size(); ++i)
    require(next.sequences_[i].size() == 0 || (next.sequences_[i].begin == sequences_[i].begin &&
                                               next.sequences_[i].end == sequences_[i].end),
            ErrorCode::usage, "KvCache: sequence {} has other ids than it had", i);
  for (size_t s = 0; s < sites_.size(); ++s) {
    const Site old = std::exchange(sites_[s], {});
    if (!old.k.defined()) continue;
    const auto site = static_cast<int>(s);
    next.make(site, old.k);
    Site& at = next.sites_[s];
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const Range range = next.ids(site, static_cast<int>(i));
      const int64_t count = range.size();
      if (count == 0) continue;
      const int64_t from = place(site, static_cast<int>(i), range.begin),
                    to = next.place(site, static_cast<int>(i), range.begin);
      tensor::copy_into(at.k.slice(0, to, to + count), old.k.slice(0, from, from + count));
      tensor::copy_into(at.v.slice(0, to, to + count), old.v.slice(0, from, from + count));
      std::copy_n(old.written.begin() + from, count, at.written.begin() + to);
    }
  }
  sequences_ = std::move(next.sequences_);
  for (int i : {0, 1}) first_[i] = std::move(next.first_[i]);
  sites_ = std::move(next.sites_);
}

KvCache::Tables KvCache::release() {
  Tables tables;
  for (Site& slots : sites_) {
    tables.emplace_back(std::move(slots.k), std::move(slots.v));
    slots = {};
  }
  return tables;
}

void KvCache::adopt(int sequence, int64_t tokens, Tables tables) {
  require(tables.size() == sites_.size(), ErrorCode::usage,
          "KvCache: keys and values of {} sites for {}", tables.size(), sites_.size());
  for (auto& [k, v] : tables)
    for (Tensor* x : {&k, &v}) {
      require(x->defined() && x->size(0) >= tokens, ErrorCode::usage,
              "KvCache: there are fewer keys and values than {} tokens have", tokens);
      *x = x->held_as(tensor::MemoryClass::kv);
    }
  for (size_t site = 0; site < tables.size(); ++site) {
    auto [k, v] = std::exchange(tables[site], {});
    write(static_cast<int>(site), {{sequence, {0, tokens}}}, k.slice(0, 0, tokens),
          v.slice(0, 0, tokens), 0);
  }
}

}  // namespace tessera::nn
