#include "completion/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace tessera {

PrefixCache::State::Keys PrefixCache::State::take(const std::shared_ptr<const void>& model,
                                                  int block, size_t ranks,
                                                  const std::vector<int32_t>& prompt,
                                                  int64_t& common) {
  Keys found;
  {
    const std::lock_guard lock(mutex);
    std::swap(found, keys);
  }
  common = 0;
  if (found.model != model || found.block != block || found.ranks.size() != ranks) return {};
  const std::vector<int32_t>& ids = found.ranks.front().ids;
  const auto length = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first;
  common = (length - ids.begin()) / block * block;
  return common > 0 ? std::move(found) : Keys{};
}

void PrefixCache::State::put(Keys made) {
  const std::vector<int32_t>& ids = made.ranks.front().ids;
  const bool alike = std::ranges::all_of(made.ranks, [&](const Rank& rank) {
    return rank.ids == ids && !rank.tables.empty() && rank.tables.front().first.defined();
  });
  if (ids.empty() || !alike) made = {};
  const std::lock_guard lock(mutex);
  keys = std::move(made);
}

PrefixCache::PrefixCache() : state_(std::make_unique<State>()) {}
PrefixCache::~PrefixCache() = default;

int64_t PrefixCache::tokens() const {
  const std::lock_guard lock(state_->mutex);
  return state_->keys.ranks.empty() ? 0 : std::ssize(state_->keys.ranks.front().ids);
}

int64_t PrefixCache::bytes() const {
  const std::lock_guard lock(state_->mutex);
  int64_t all = 0;
  for (const State::Rank& rank : state_->keys.ranks)
    for (const auto& [k, v] : rank.tables) all += k.bytes() + v.bytes();
  return all;
}

void PrefixCache::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->keys = {};
}

namespace completion {

RankPrefix::RankPrefix(PrefixCache::State::Rank* rank, int64_t reused, nn::KvCache& cache)
    : rank_(rank), cache_(cache) {
  if (!rank_) return;
  rank_->ids.resize(static_cast<size_t>(reused));
  auto tables = std::exchange(rank_->tables, {});
  if (reused > 0) cache_.adopt(0, reused, std::move(tables));
}

RankPrefix::~RankPrefix() {
  if (rank_) rank_->tables = cache_.release();
}

void RankPrefix::see(const sample::BlockWalk& walk) {
  if (rank_) rank_->ids.assign(walk.ids().begin(), walk.ids().begin() + walk.kept());
}

PrefixLease::PrefixLease(const runtime::ModelState& state, const CompleteRequest& q,
                         const sample::DecodingPolicy& policy, PrefixCache* of,
                         std::vector<sample::TokenPrompt>& prompts)
    : prefix(of) {
  if (!prefix || policy.cache.kind != KvCache::block || q.select_prefill || prompts.size() > 1 ||
      !state.ranks().all_here())
    return;
  const auto ranks = static_cast<size_t>(state.options.plan.world());
  const int block = policy.denoises() ? 1 : policy.block;  // text before a canvas is causal
  keys = prefix->state().take(state.identity, block, ranks, prompts[0].ids, prompts[0].kept);
  keys.model = state.identity;
  keys.block = block;
  keys.ranks.resize(ranks);
}

}  // namespace completion
}  // namespace tessera
