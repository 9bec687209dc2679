#include "nn/kv_slots.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::nn {
void KvSlots::reserve(Slots& slots, int site, int64_t ids, tensor::Device device) const {
  const AttentionSite& at = geometry_.attention.at(static_cast<size_t>(site));
  const int64_t held = slots.k.defined() ? slots.k.size(0) : 0;
  if (ids <= held) return;
  const int64_t capacity = std::max({ids, held + held / 2, int64_t{64}});
  for (Tensor* x : {&slots.k, &slots.v}) {
    Tensor more = Tensor::empty({capacity, int64_t{at.kv_heads} * at.head_dim}, dtype_, device,
                                tensor::MemoryClass::kv);
    if (held > 0) tensor::copy_into(more.slice(0, 0, held), *x);
    *x = more;
  }
  slots.written.resize(static_cast<size_t>(capacity), -1);
}

void KvSlots::write(int site, const Segments& segments, const Tensor& k, const Tensor& v,
                    int step) {
  require(k.shape() == v.shape() && k.rank() == 2 && k.size(0) == token_count(segments) &&
              k.dtype() == dtype_ && v.dtype() == dtype_,
          ErrorCode::usage, "KvSlots: keys {} and values {} for {} tokens at site {}",
          k.shape().str(), v.shape().str(), token_count(segments), site);
  int64_t at = 0;
  for (const Segment& s : segments) {
    Slots& slots = slots_[{site, s.row}];
    reserve(slots, site, s.ids.end, k.device());
    const int64_t end = at + s.ids.size();
    tensor::copy_into(slots.k.slice(0, s.ids.begin, s.ids.end), k.slice(0, at, end));
    tensor::copy_into(slots.v.slice(0, s.ids.begin, s.ids.end), v.slice(0, at, end));
    std::fill(slots.written.begin() + s.ids.begin, slots.written.begin() + s.ids.end, step);
    at = end;
  }
}

std::pair<Tensor, Tensor> KvSlots::read(int site, int row, Range ids) const {
  for (int64_t id = ids.begin; id < ids.end; ++id)
    require(written(site, row, id) >= 0, ErrorCode::usage,
            "KvSlots: site {} reads token {} of row {}, which was never written", site, id, row);
  const auto found = slots_.find({site, row});
  if (found == slots_.end()) return {};
  const Slots& slots = found->second;
  return {slots.k.slice(0, ids.begin, ids.end), slots.v.slice(0, ids.begin, ids.end)};
}

int KvSlots::written(int site, int row, int64_t id) const {
  const auto found = slots_.find({site, row});
  if (found == slots_.end() || id < 0 || id >= int64_t(found->second.written.size())) return -1;
  return found->second.written[static_cast<size_t>(id)];
}

int64_t KvSlots::bytes() const {
  int64_t total = 0;
  for (const auto& [key, slots] : slots_) total += slots.k.bytes() + slots.v.bytes();
  return total;
}

}  // namespace tessera::nn
