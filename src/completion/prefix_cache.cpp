#include "completion/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "tensor/uncounted.h"

namespace tessera {

using Conversation = PrefixCache::State::Conversation;

namespace {

int64_t bytes_of(const nn::KvCache::Tables& tables) {
  int64_t sum = 0;
  for (const auto& [k, v] : tables) sum += k.bytes() + v.bytes();
  return sum;
}

tensor::Tensor copied(const tensor::Tensor& rows) {
  const auto own =
      tensor::Tensor::empty(rows.shape(), rows.dtype(), rows.device(), tensor::MemoryClass::kv);
  tensor::copy_into(own, rows);
  return own;
}

int64_t common_of(const std::vector<int32_t>& ids, const std::vector<int32_t>& prompt, int block) {
  const auto end = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first;
  return (end - ids.begin()) / block * block;
}

}  // namespace

int64_t Conversation::bytes() const {
  int64_t sum = 0;
  for (const auto& tables : ranks) sum += bytes_of(*tables);
  return sum;
}

bool Conversation::fits(const Conversation& other) const {
  return owner == other.owner && model == other.model && block == other.block &&
         ranks.size() == other.ranks.size();
}

PrefixCache::State::State(int64_t bytes) : limit(std::max<int64_t>(bytes, 0)) {
  if (limit > 0)
    residence_.emplace(runtime::pool(), runtime::PooledModel::Keeps{
                                            "kept conversations", [this] { return this->bytes(); },
                                            [this] { clear(); }});
}

PrefixCache::State::~State() = default;

Conversation PrefixCache::State::find(const Conversation& conversation, int64_t& common) {
  std::list<Conversation> leaving;  // freed without the lock
  const std::lock_guard lock(mutex_);
  common = 0;
  auto best = kept_.end();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const int64_t alike =
        it->fits(conversation) ? common_of(it->ids, conversation.ids, conversation.block) : 0;
    if (alike <= common) continue;
    common = alike;
    best = it;
  }
  Conversation match;
  if (best != kept_.end()) {
    match = *best;
    kept_.splice(kept_.begin(), kept_, best);
  }
  if (limit == 0) leaving.swap(kept_);
  return match;
}

void PrefixCache::State::put(Conversation conversation) {
  std::list<Conversation> leaving;
  int64_t sum = conversation.bytes();
  const std::lock_guard lock(mutex_);
  const auto leave = [&](auto it) { leaving.splice(leaving.end(), kept_, it); };
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto next = std::next(it);
    const bool beginning = it->fits(conversation) && it->ids.size() <= conversation.ids.size() &&
                           std::equal(it->ids.begin(), it->ids.end(), conversation.ids.begin());
    if (limit == 0 || beginning)
      leave(it);
    else
      sum += it->bytes();
    it = next;
  }
  kept_.push_front(std::move(conversation));
  for (; limit > 0 && sum > limit; leave(std::prev(kept_.end()))) sum -= kept_.back().bytes();
}

int64_t PrefixCache::State::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const Conversation& conversation : kept_) sum += conversation.bytes();
  return sum;
}

int64_t PrefixCache::State::tokens() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const Conversation& conversation : kept_) sum += std::ssize(conversation.ids);
  return sum;
}

void PrefixCache::State::clear() {
  std::list<Conversation> leaving;
  const std::lock_guard lock(mutex_);
  leaving.swap(kept_);
}

PrefixCache::PrefixCache(int64_t limit) : state_(std::make_unique<State>(limit)) {}
PrefixCache::~PrefixCache() = default;
int64_t PrefixCache::tokens() const { return state_->tokens(); }
int64_t PrefixCache::bytes() const { return state_->bytes(); }
void PrefixCache::clear() { state_->clear(); }

namespace completion {

PrefixLease::PrefixLease(const runtime::ModelState& state, const CompleteRequest& q,
                         const sample::DecodingPolicy& policy, const CompleteControl& control,
                         std::vector<sample::TokenPrompt>& prompts)
    : owner_(control.owner) {
  if (!control.prefix || policy.cache.kind != KvCache::block || q.select_prefill ||
      !state.ranks().all_here())
    return;
  PrefixCache::State& store = control.prefix->state();
  if (store.limit == 0 && (prompts.size() > 1 || control.join)) return;
  prefix_ = &store;
  form_.model = state.identity;
  form_.block = policy.denoises() ? 1 : policy.block;  // text before a canvas is causal
  form_.ranks.resize(static_cast<size_t>(state.options.plan.world()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    find(prompts[i].ids);
    tell(static_cast<int>(i), prompts[i]);
  }
}

PrefixLease::~PrefixLease() {
  for (Loan& loan : loans_)  // no rank began: a cache without limit stays as before
    if (prefix_->limit == 0 && !loan.match.ranks.empty() && loan.takers == 0)
      prefix_->put(std::move(loan.match));
}

bool PrefixLease::fits(int64_t bytes_of_rank) const {
  return prefix_ &&
         (prefix_->limit == 0 || bytes_of_rank * std::ssize(form_.ranks) <= prefix_->limit);
}

void PrefixLease::find(const std::vector<int32_t>& prompt) {
  if (!prefix_) return;
  const std::lock_guard lock(mutex_);
  Loan loan;
  loan.successor = form_;
  if (owner_) loan.successor.owner = owner_(static_cast<int>(loans_.size()));
  loan.successor.ids = prompt;
  loan.match = prefix_->find(loan.successor, loan.common);
  loan.successor.ids.clear();
  loans_.push_back(std::move(loan));
}

void PrefixLease::tell(int sequence, sample::TokenPrompt& prompt) const {
  if (!prefix_) return;
  const std::lock_guard lock(mutex_);
  const Loan& loan = loans_.at(static_cast<size_t>(sequence));
  prompt.kept = loan.common;
  prompt.held = std::ssize(loan.match.ids);
}

std::shared_ptr<const nn::KvCache::Tables> PrefixLease::take(int sequence, int rank) {
  const std::lock_guard lock(mutex_);
  Loan& loan = loans_.at(static_cast<size_t>(sequence));
  ++loan.takers;
  return std::move(loan.match.ranks.at(static_cast<size_t>(rank)));
}

void PrefixLease::leave(int sequence, int rank, std::vector<int32_t> ids,
                        nn::KvCache::Tables tables) {
  const std::lock_guard lock(mutex_);
  Loan& loan = loans_.at(static_cast<size_t>(sequence));
  if (loan.givers++ == 0)
    loan.successor.ids = std::move(ids);
  else if (loan.successor.ids != ids)
    loan.alike = false;
  loan.successor.ranks.at(static_cast<size_t>(rank)) =
      std::make_shared<const nn::KvCache::Tables>(std::move(tables));
  if (loan.givers == loan.successor.ranks.size() && loan.alike)
    prefix_->put(std::move(loan.successor));
}

RankPrefix::RankPrefix(PrefixLease& lease, int rank,
                       const std::vector<sample::TokenPrompt>& prompts, bool joins, int sites,
                       nn::KvCache& cache)
    : lease_(lease), rank_(rank), prompts_(prompts), joins_(joins), sites_(sites), cache_(cache) {
  adopt();
}

RankPrefix::~RankPrefix() {
  while (!ids_.empty()) leave(ids_.begin()->first, ids_.size() == 1);
}

void RankPrefix::adopt() {
  if (!lease_.keeps()) return;
  for (; adopted_ < prompts_.size(); ++adopted_) {
    const auto sequence = static_cast<int>(adopted_);
    const sample::TokenPrompt& prompt = prompts_[adopted_];
    ids_[sequence].assign(prompt.ids.begin(), prompt.ids.begin() + prompt.kept);
    if (prompt.kept == 0) continue;
    nn::KvCache::Tables tables = *lease_.take(sequence, rank_);
    cache_.adopt(sequence, prompt.kept, std::move(tables));
  }
}

void RankPrefix::see(int sequence, const sample::BlockWalk& walk) {
  const auto at = ids_.find(sequence);
  if (at != ids_.end() && walk.kept() != std::ssize(at->second))
    at->second.assign(walk.ids().begin(), walk.ids().begin() + walk.kept());
}

void RankPrefix::ended(int sequence) {
  if (joins_ && ids_.contains(sequence)) leave(sequence, false);
}

// True for tokens within the limit of the cache.
bool RankPrefix::worth(const std::vector<int32_t>& ids) const {
  const tensor::Tensor k = cache_.table(0).first;
  return !ids.empty() && k.defined() && lease_.fits(cache_.bytes() / k.size(0) * std::ssize(ids));
}

nn::KvCache::Tables RankPrefix::tables_of(int sequence, int64_t tokens, bool last) {
  nn::KvCache::Tables tables;
  for (int site = 0; site < sites_; ++site)
    tables.push_back(cache_.read(site, sequence, {0, tokens}));
  const bool whole = last && cache_.table(0).first.size(0) == tokens;
  if (last) cache_.release();  // then only the views hold slots, each until its copy
  for (auto& [k, v] : tables)
    for (tensor::Tensor* x : {&k, &v})
      if (!whole) *x = copied(*x);
  return tables;
}

// `last`: the slots of all sequences may go.
void RankPrefix::leave(int sequence, bool last) {
  std::vector<int32_t> ids = std::move(ids_.at(sequence));
  ids_.erase(sequence);
  try {
    if (!worth(ids)) return;
    const tensor::Uncounted beside(tensor::Counts::work);  // memory of the store
    nn::KvCache::Tables tables = tables_of(sequence, std::ssize(ids), last);
    lease_.leave(sequence, rank_, std::move(ids), std::move(tables));
  } catch (const std::exception&) {  // the next turn computes more
    return;
  }
}

}  // namespace completion
}  // namespace tessera
