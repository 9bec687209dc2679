#include "nn/moe/expert_cache.h"

#include <algorithm>
#include <iterator>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::nn {

ExpertCache::Held::Held(Kept what, std::set<int> in)
    : kept(std::move(what)), cores(std::move(in)), memory(tensor::current_scope().memory) {
  if (memory) memory->add(tensor::MemoryClass::weights, kept.bytes);
}

ExpertCache::Held::~Held() {
  if (memory) memory->add(tensor::MemoryClass::weights, -kept.bytes);
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
  for (Held& held : recent_)
    std::erase_if(held.cores, [&](int sequence) { return over.contains(sequence); });
}

ExpertCache::Asked ExpertCache::asked_by(const Segments& body, const tensor::Tensor& ids) const {
  Asked asked;
  int64_t row = 0;
  for (const Segment& s : body) {
    const auto core = cores_.find(s.sequence);
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id, ++row) {
      const bool kept =
          core != cores_.end() && id >= core->second.tokens.begin && id < core->second.tokens.end;
      for (int64_t j = 0; j < ids.size(1); ++j) {
        const int32_t expert = ids.row<int32_t>(row)[j];
        if (expert < 0) continue;
        std::set<int>& cores = asked[expert];
        if (kept) cores.insert(s.sequence);
      }
    }
  }
  return asked;
}

ExpertCache::Asked ExpertCache::asked_by(const tensor::Tensor& ids) const {
  std::set<int> all;
  for (const auto& [sequence, core] : cores_) all.insert(sequence);
  Asked asked;
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (const int32_t expert = ids.data<int32_t>()[i]; expert >= 0) asked.try_emplace(expert, all);
  return asked;
}

// Evicts down to `most` experts; never the requested experts.
void ExpertCache::leave(int64_t most, int site, const Asked& asked) {
  const auto may_leave = [&](const Held& held, bool kept) {
    return held.cores.empty() != kept &&
           (held.kept.key.first != site || !asked.contains(held.kept.key.second));
  };
  while (size() > most) {
    auto last = std::find_if(recent_.rbegin(), recent_.rend(),
                             [&](const Held& held) { return may_leave(held, false); });
    auto at = last == recent_.rend()
                  ? std::find_if(recent_.begin(), recent_.end(),
                                 [&](const Held& held) { return may_leave(held, true); })
                  : std::prev(last.base());
    if (at == recent_.end()) return;  // all are requested
    held_.erase(at->kept.key);
    recent_.erase(at);
  }
}

std::vector<ops::Expert> ExpertCache::bank(int site, int64_t experts, const Segments& body,
                                           const tensor::Tensor& ids) {
  return ids.is_meta() ? shapes(site, experts) : give(site, experts, asked_by(body, ids));
}

std::vector<ops::Expert> ExpertCache::bank(int site, int64_t experts, const tensor::Tensor& ids) {
  return ids.is_meta() ? shapes(site, experts) : give(site, experts, asked_by(ids));
}

std::vector<ops::Expert> ExpertCache::shapes(int site, int64_t experts) {
  std::vector<ops::Expert> bank(static_cast<size_t>(experts));
  if (!shape_.up) shape_ = read({site, 0}).expert;
  bank.front() = shape_;
  return bank;
}

std::vector<ops::Expert> ExpertCache::give(int site, int64_t experts, const Asked& asked) {
  std::vector<ops::Expert> bank(static_cast<size_t>(experts));
  const auto count = static_cast<int64_t>(asked.size());
  require(count <= capacity_, ErrorCode::memory,
          "the tokens of a pass go to {} experts of a layer, and there is memory for {}: give more "
          "`memory_budget`, or fewer prompts at once",
          count, capacity_);
  for (const auto& [expert, cores] : asked) {  // before any eviction
    const auto found = held_.find({site, expert});
    if (found == held_.end()) continue;
    recent_.splice(recent_.begin(), recent_, found->second);
    recent_.front().cores.insert(cores.begin(), cores.end());
    bank[static_cast<size_t>(expert)] = recent_.front().kept.expert;
    ++use_.hits;
  }
  for (const auto& [expert, cores] : asked) {
    ops::Expert& wanted = bank[static_cast<size_t>(expert)];
    if (wanted.up) continue;
    leave(capacity_ - 1, site, asked);
    recent_.emplace_front(read({site, expert}), cores);
    wanted = recent_.front().kept.expert;
    held_[{site, expert}] = recent_.begin();
    ++use_.misses;
  }
  return bank;
}

void ExpertCache::adopt(std::vector<Kept> kept) {
  for (Kept& one : kept) {
    if (size() == capacity_) return;
    const Key key = one.key;
    recent_.emplace_back(std::move(one), std::set<int>());
    held_[key] = std::prev(recent_.end());
  }
}

std::vector<ExpertCache::Kept> ExpertCache::release() {
  std::vector<Kept> kept;
  for (const Held& held : recent_) kept.push_back(held.kept);
  held_.clear();
  recent_.clear();
  return kept;
}

void ExpertCache::resize(int64_t capacity) {
  capacity_ = capacity;
  leave(capacity_, -1, {});
}

}  // namespace tessera::nn
