#include "nn/moe/expert_cache.h"

#include <algorithm>
#include <iterator>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::nn {

ExpertCache::Entry::Entry(Kept expert, std::set<int> in)
    : item(std::move(expert)), cores(std::move(in)), memory(tensor::current_scope().memory) {
  if (memory) memory->add(tensor::MemoryClass::weights, item.bytes);
}

ExpertCache::Entry::~Entry() {
  if (memory) memory->add(tensor::MemoryClass::weights, -item.bytes);
}

// Others may share the expert and hold on longer: the bytes count for the holder, not here.
ExpertCache::Kept ExpertCache::read(const Key& key) const {
  tensor::Scope aside = tensor::current_scope();
  aside.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(aside);
  ops::Expert expert = read_(key.first, key.second);
  return {key, std::move(expert), aside.memory->current(tensor::MemoryClass::weights)};
}

void ExpertCache::begin_pass(std::map<int, Core> cores) {
  std::set<int> over;
  for (const auto& [sequence, core] : cores_)
    if (const auto now = cores.find(sequence);
        now == cores.end() || now->second.block != core.block)
      over.insert(sequence);
  cores_ = std::move(cores);
  for (Entry& entry : recent_)
    std::erase_if(entry.cores, [&](int sequence) { return over.contains(sequence); });
}

ExpertCache::Requests ExpertCache::requests_of(const Segments& body,
                                               const tensor::Tensor& ids) const {
  Requests requests;
  int64_t row = 0;
  for (const Segment& s : body) {
    const auto core = cores_.find(s.sequence);
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id, ++row) {
      const bool in_core =
          core != cores_.end() && id >= core->second.tokens.begin && id < core->second.tokens.end;
      for (int64_t j = 0; j < ids.size(1); ++j) {
        const int32_t expert = ids.row<int32_t>(row)[j];
        if (expert < 0) continue;
        std::set<int>& cores = requests[expert];
        if (in_core) cores.insert(s.sequence);
      }
    }
  }
  return requests;
}

ExpertCache::Requests ExpertCache::requests_of(const tensor::Tensor& ids) const {
  std::set<int> sequences;
  for (const auto& [sequence, core] : cores_) sequences.insert(sequence);
  Requests requests;
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (const int32_t expert = ids.data<int32_t>()[i]; expert >= 0)
      requests.try_emplace(expert, sequences);
  return requests;
}

// Evicts down to `most` experts; never the requested experts.
void ExpertCache::leave(int64_t most, int site, const Requests& requests) {
  const auto may_leave = [&](const Entry& entry, bool in_core) {
    return entry.cores.empty() != in_core &&
           (entry.item.key.first != site || !requests.contains(entry.item.key.second));
  };
  while (size() > most) {
    auto last = std::find_if(recent_.rbegin(), recent_.rend(),
                             [&](const Entry& entry) { return may_leave(entry, false); });
    auto at = last == recent_.rend()
                  ? std::find_if(recent_.begin(), recent_.end(),
                                 [&](const Entry& entry) { return may_leave(entry, true); })
                  : std::prev(last.base());
    if (at == recent_.end()) return;  // all are requested
    entries_.erase(at->item.key);
    recent_.erase(at);
  }
}

std::vector<ops::Expert> ExpertCache::bank(int site, int64_t experts, const Segments& body,
                                           const tensor::Tensor& ids) {
  return ids.is_meta() ? shapes(site, experts) : give(site, experts, requests_of(body, ids));
}

std::vector<ops::Expert> ExpertCache::bank(int site, int64_t experts, const tensor::Tensor& ids) {
  return ids.is_meta() ? shapes(site, experts) : give(site, experts, requests_of(ids));
}

std::vector<ops::Expert> ExpertCache::shapes(int site, int64_t experts) {
  std::vector<ops::Expert> bank(static_cast<size_t>(experts));
  if (!shape_.up) shape_ = read({site, 0}).expert;
  bank.front() = shape_;
  return bank;
}

std::vector<ops::Expert> ExpertCache::give(int site, int64_t experts, const Requests& requests) {
  std::vector<ops::Expert> bank(static_cast<size_t>(experts));
  const auto count = static_cast<int64_t>(requests.size());
  require(count <= capacity_, ErrorCode::memory,
          "the tokens of a pass go to {} experts of a layer, and there is memory for {}: give more "
          "`memory_budget`, or fewer prompts at once",
          count, capacity_);
  for (const auto& [expert, cores] : requests) {  // before any eviction
    const auto it = entries_.find({site, expert});
    if (it == entries_.end()) continue;
    recent_.splice(recent_.begin(), recent_, it->second);
    recent_.front().cores.insert(cores.begin(), cores.end());
    bank[static_cast<size_t>(expert)] = recent_.front().item.expert;
    ++use_.hits;
  }
  for (const auto& [expert, cores] : requests) {
    ops::Expert& weights = bank[static_cast<size_t>(expert)];
    if (weights.up) continue;
    leave(capacity_ - 1, site, requests);
    recent_.emplace_front(read({site, expert}), cores);
    weights = recent_.front().item.expert;
    entries_[{site, expert}] = recent_.begin();
    ++use_.misses;
  }
  return bank;
}

void ExpertCache::adopt(std::vector<Kept> entries) {
  for (Kept& entry : entries) {
    if (size() == capacity_) return;
    const Key key = entry.key;
    recent_.emplace_back(std::move(entry), std::set<int>());
    entries_[key] = std::prev(recent_.end());
  }
}

std::vector<ExpertCache::Kept> ExpertCache::release() {
  std::vector<Kept> entries;
  for (const Entry& entry : recent_) entries.push_back(entry.item);
  entries_.clear();
  recent_.clear();
  return entries;
}

void ExpertCache::resize(int64_t capacity) {
  capacity_ = capacity;
  leave(capacity_, -1, {});
}

}  // namespace tessera::nn
