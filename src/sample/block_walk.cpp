#include "sample/block_walk.h"

#include <algorithm>

#include "base/fail.h"
#include "sample/canvas_walk.h"

namespace tessera::sample {
namespace {

class BidirectionalWalk : public BlockWalk {
 public:
  BidirectionalWalk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                    const DecodingPolicy& policy, const SpecialIds& special)
      : BlockWalk(prompt, max_tokens, policy, special, false) {
    block_ = {prompt_, prompt_};
  }

  std::optional<Pass> next() override {
    if (done_) return {};
    const auto length = static_cast<int64_t>(ids_.size());
    while (masks_in(block_) == 0) {
      if (block_.end == length) return {};
      block_ = {block_.end, std::min(block_.end + policy_.block, length)};
      stale_ = true;
      rule_->begin_block(masks_in(block_));
    }
    return pass_of(length);
  }

  void commit(const Pass& pass, const std::vector<Prediction>& choices) override {
    write(choices);
    ++passes_;
    if (pass.kind == PassKind::refresh) stale_ = false;
    if (policy_.stop == StopAtEos::none) return;
    const int64_t end = first_end({prompt_, block_.end});
    if (end == block_.end) return;
    const bool whole = masks_in(block_) == 0;
    if (policy_.stop == StopAtEos::early && masks_in({prompt_, end}) == 0)
      std::fill(ids_.begin() + end, ids_.end(), ids_[size_t(end)]);
    else if (whole)
      std::fill(ids_.begin() + block_.end, ids_.end(), ids_[size_t(end)]);
    else
      return;
    done_ = true;
  }

 private:
  Pass pass_of(int64_t length) const {
    const Pass all{PassKind::refresh, {0, length}, block_, length};
    const Pass full{PassKind::full, {0, length}, block_, length};
    switch (policy_.cache.kind) {
      case KvCache::prefix:
        return stale_ ? all : Pass{PassKind::suffix, {block_.begin, length}, block_, length};
      case KvCache::dual: return stale_ ? all : Pass{PassKind::block, block_, block_, length};
      case KvCache::vicinity: {
        if (passes_ < policy_.cache.warmup) return full;
        const Range window{std::max<int64_t>(0, block_.begin - policy_.cache.before),
                           std::min(length, block_.end + policy_.cache.after)};
        return stale_ ? all : Pass{PassKind::window, window, block_, length};
      }
      default: return full;
    }
  }

  bool stale_ = true;  // no keys of this block are cached yet
  int64_t passes_ = 0;
};

class CausalWalk : public BlockWalk {
 public:
  CausalWalk(const std::vector<int32_t>& prompt, int64_t max_tokens, const DecodingPolicy& policy,
             const SpecialIds& special, int64_t cached_tokens)
      : BlockWalk(prompt, max_tokens, policy, special, true), kept_(cached_tokens) {
    const int64_t start = prompt_ / policy.block * policy.block;
    require(
        cached_tokens >= 0 && cached_tokens <= start && cached_tokens % policy.block == 0 &&
            (cached_tokens == 0 || cached()),
        ErrorCode::usage,
        "{} tokens are kept of a prompt of {}; expected whole blocks of {} of it, in a cache of "
        "finished blocks",
        cached_tokens, prompt_, policy.block);
    block_ = {start, start + policy.block};
    prefill_ = cached() && start > cached_tokens && policy.as_published;
    begin_block();
  }

  int64_t kept() const override { return cached() ? kept_ : 0; }

  std::optional<Pass> next() override {
    if (done_ || has_all()) return {};
    if (prefill_) return Pass{PassKind::prefill, {kept_, block_.begin}, {}, block_.begin};
    if (open_) {
      if (cached()) return Pass{PassKind::block, {kept_, block_.end}, block_, block_.end};
      return Pass{PassKind::full, {0, block_.end}, block_, block_.end};
    }
    if (block_.end == int64_t(ids_.size())) return {};
    if (cached() && policy_.as_published) return Pass{PassKind::finalise, block_, {}, block_.end};
    enter_next();
    return next();
  }

  void commit(const Pass& pass, const std::vector<Prediction>& choices) override {
    if (pass.kind == PassKind::prefill) {
      prefill_ = false;
      kept_ = block_.begin;
      return;
    }
    if (pass.kind == PassKind::finalise) {
      enter_next();
      return;
    }
    const bool full = masks_in(block_) == 0;
    kept_ = block_.begin;
    write(choices);
    settle(full, choices.empty());
    const Range so_far{prompt_, block_.end};
    const int64_t end = first_end(so_far);
    if (policy_.stop == StopAtEos::none || end == so_far.end) return;
    done_ = !open_ || (policy_.stop == StopAtEos::early && !policy_.edits() &&
                       masks_in({block_.begin, end}) == 0);
  }

 private:
  bool cached() const { return policy_.cache.kind == KvCache::block; }
  void enter_next() {
    block_ = {block_.end, block_.end + policy_.block};
    if (policy_.as_published) kept_ = block_.begin;
    begin_block();
  }
  void begin_block() {
    rule_->begin_block(masks_in(block_));
    open_ = masks_in(block_) > 0;
    posts_ = 0;
  }
  // Whether the requested tokens exist, and none of them may change.
  bool has_all() const {
    const int64_t end = prompt_ + limit_;
    return !policy_.as_published && !policy_.edits() && block_.end >= end &&
           masks_in({prompt_, end}) == 0;
  }
  // With an editing rule a filled block is repeated until a pass changes nothing, or up to the
  // limit of passes.
  void settle(bool full, bool unchanged) {
    if (full) ++posts_;
    const bool going = policy_.edits() && posts_ < policy_.posts && !(full && unchanged);
    open_ = masks_in(block_) > 0 || rule_->goes_on().value_or(going);
  }
  bool prefill_ = false;
  int64_t kept_;   // tokens with final keys and values in the cache
  int posts_ = 0;  // passes over the block without masks
};

}  // namespace

int64_t sequence_length(int64_t prompt, int64_t max_tokens, const DecodingPolicy& policy,
                        bool block_causal) {
  require(max_tokens >= 1, ErrorCode::usage, "{} tokens were asked for; expected 1 or more",
          max_tokens);
  const int64_t count = prompt + max_tokens;
  const int64_t first = policy.denoises() ? prompt : 0;  // where blocks begin
  if (!block_causal) return count;
  return first + (count - first + policy.block - 1) / policy.block * policy.block;
}

BlockWalk::BlockWalk(const std::vector<int32_t>& prompt, int64_t limit,
                     const DecodingPolicy& policy, const SpecialIds& special, bool block_causal,
                     std::unique_ptr<UnmaskingPolicy> rule)
    : ids_(prompt),
      prompt_(int64_t(prompt.size())),
      limit_(limit),
      policy_(policy),
      special_(special),
      rule_(rule ? std::move(rule) : unmasking_policy(policy, special)) {
  const auto mask = std::find(prompt.begin(), prompt.end(), special.mask);
  require(mask == prompt.end(), ErrorCode::usage,
          "the prompt holds the mask token {} at position {}; masks are what is generated",
          special.mask, mask - prompt.begin());
  ids_.resize(static_cast<size_t>(sequence_length(prompt_, limit, policy, block_causal)),
              special.mask);
}

int64_t BlockWalk::masks_in(Range range) const {
  return std::count(ids_.begin() + range.begin, ids_.begin() + range.end, special_.mask);
}

std::vector<Range> BlockWalk::undecided(Range range) const {
  return runs_where(range, [&](int64_t i) { return ids_[size_t(i)] == special_.mask; });
}

int64_t BlockWalk::first_end(Range range) const {
  for (int64_t i = range.begin; i < range.end; ++i)
    if (std::count(special_.ends.begin(), special_.ends.end(), ids_[size_t(i)]) > 0) return i;
  return range.end;
}

void BlockWalk::write(const std::vector<Prediction>& choices) {
  for (const Prediction& p : choices) ids_.at(size_t(p.position)) = p.token;
}

int64_t BlockWalk::settled() const {
  const auto from = ids_.begin() + prompt_;
  const int64_t most =
      open_ && policy_.edits() ? std::clamp<int64_t>(block_.begin - prompt_, 0, limit_) : limit_;
  return std::find(from, from + most, special_.mask) - from;
}

std::vector<int32_t> BlockWalk::generated() const {
  Range result{prompt_, prompt_ + settled()};
  if (policy_.stop != StopAtEos::none) {
    const int64_t end = first_end(result);
    result.end = std::min(result.end, end + 1);
  }
  return {ids_.begin() + result.begin, ids_.begin() + result.end};
}

bool BlockWalk::ended() const {
  const Range result{prompt_, prompt_ + settled()};
  return policy_.stop != StopAtEos::none && first_end(result) != result.end;
}

std::unique_ptr<BlockWalk> block_walk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                                      const DecodingPolicy& policy, const SpecialIds& special,
                                      bool block_causal, int64_t cached_tokens) {
  if (policy.denoises()) return canvas_walk(prompt, max_tokens, policy, special, cached_tokens);
  if (block_causal)
    return std::make_unique<CausalWalk>(prompt, max_tokens, policy, special, cached_tokens);
  require(cached_tokens == 0, ErrorCode::usage,
          "{} tokens are kept of a prompt whose model sees all tokens from each; expected none",
          cached_tokens);
  return std::make_unique<BidirectionalWalk>(prompt, max_tokens, policy, special);
}

}  // namespace tessera::sample
