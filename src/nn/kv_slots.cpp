#include "nn/kv_slots.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::nn {

KvSlots::KvSlots(const Geometry& geometry, std::vector<Range> rows, Shard heads)
    : geometry_(geometry),
      rows_(std::move(rows)),
      heads_(heads),
      sites_(geometry.attention.size()) {
  for (auto* first : {&first_[0], &first_[1]}) first->push_back(0);
  for (const Range& row : rows_) {
    require(row.begin <= 0 && row.end >= 0, ErrorCode::usage,
            "KvSlots: a row of ids {} to {}; text ends at 0, where the body begins", row.begin,
            row.end);
    first_[0].push_back(first_[0].back() + row.end);
    first_[1].push_back(first_[1].back() + row.size());
  }
}

Range KvSlots::ids(int site, int row) const {
  const Range& all = rows_.at(static_cast<size_t>(row));
  return geometry_.attention.at(static_cast<size_t>(site)).joint ? all : Range{0, all.end};
}

std::pair<int, int> KvSlots::heads(int site) const {
  const AttentionSite& at = geometry_.attention.at(static_cast<size_t>(site));
  const auto kept = static_cast<int>(split({0, at.kv_heads}, heads_.count, heads_.index).size());
  return {kept * (at.heads / at.kv_heads), kept};
}

int64_t KvSlots::place(int site, int row, int64_t id) const {
  const bool joint = geometry_.attention.at(static_cast<size_t>(site)).joint;
  return first_[joint].at(static_cast<size_t>(row)) + id - ids(site, row).begin;
}

void KvSlots::make(int site, const Tensor& like) {
  Site& at = sites_[static_cast<size_t>(site)];
  if (at.k.defined()) return;
  const int64_t slots = first_[geometry_.attention.at(static_cast<size_t>(site)).joint].back();
  for (Tensor* x : {&at.k, &at.v})
    *x = Tensor::empty({slots, like.size(1)}, like.dtype(), like.device(), tensor::MemoryClass::kv);
  at.written.resize(static_cast<size_t>(slots), -1);
}

void KvSlots::write(int site, const Segments& segments, const Tensor& k, const Tensor& v,
                    int step) {
  const int64_t width =
      int64_t{heads(site).second} * geometry_.attention[static_cast<size_t>(site)].head_dim;
  require(k.shape() == v.shape() && k.rank() == 2 && k.size(0) == token_count(segments) &&
              k.size(1) == width && k.dtype() == v.dtype(),
          ErrorCode::usage, "KvSlots: keys {} and values {} for {} tokens of width {} at site {}",
          k.shape().str(), v.shape().str(), token_count(segments), width, site);
  make(site, k);
  Site& slots = sites_[static_cast<size_t>(site)];
  require(k.dtype() == slots.k.dtype(), ErrorCode::usage,
          "KvSlots: site {} keeps {} and is given {}", site, name_of(slots.k.dtype()),
          name_of(k.dtype()));
  int64_t at = 0;
  for (const Segment& s : segments) {
    const Range kept = ids(site, s.row);
    require(s.ids.begin >= kept.begin && s.ids.end <= kept.end, ErrorCode::usage,
            "KvSlots: site {} is given ids {} to {} of row {}, which has {} to {}", site,
            s.ids.begin, s.ids.end, s.row, kept.begin, kept.end);
    const int64_t first = place(site, s.row, s.ids.begin), count = s.ids.size();
    tensor::copy_into(slots.k.slice(0, first, first + count), k.slice(0, at, at + count));
    tensor::copy_into(slots.v.slice(0, first, first + count), v.slice(0, at, at + count));
    std::fill_n(slots.written.begin() + first, count, step);
    at += count;
  }
}

std::pair<Tensor, Tensor> KvSlots::table(int site) const {
  const Site& slots = sites_.at(static_cast<size_t>(site));
  return {slots.k, slots.v};
}

Range KvSlots::places(int site, int row, Range ids) const {
  for (int64_t id = ids.begin; id < ids.end; ++id)
    require(written(site, row, id) >= 0, ErrorCode::usage,
            "KvSlots: site {} reads token {} of row {}, which was never written", site, id, row);
  const int64_t first = place(site, row, ids.begin);
  return {first, first + ids.size()};
}

std::pair<Tensor, Tensor> KvSlots::read(int site, int row, Range ids) const {
  const Range at = places(site, row, ids);
  const auto [k, v] = table(site);
  if (!k.defined()) return {};
  return {k.slice(0, at.begin, at.end), v.slice(0, at.begin, at.end)};
}

int KvSlots::written(int site, int row, int64_t id) const {
  const Site& slots = sites_.at(static_cast<size_t>(site));
  if (!slots.k.defined() || row < 0 || row >= static_cast<int>(rows_.size())) return -1;
  const Range kept = ids(site, row);
  if (id < kept.begin || id >= kept.end) return -1;
  return slots.written[static_cast<size_t>(place(site, row, id))];
}

int64_t KvSlots::bytes() const {
  int64_t total = 0;
  for (const Site& slots : sites_)
    if (slots.k.defined()) total += slots.k.bytes() + slots.v.bytes();
  return total;
}

}  // namespace tessera::nn
