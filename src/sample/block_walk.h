#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/segments.h"
#include "sample/decoding_policy.h"
#include "sample/unmasking_policies.h"

namespace tessera::sample {

using nn::Range;

/// Runs of numbers in a range for which `holds` is true.
template <class Holds>
std::vector<Range> runs_where(Range range, const Holds& holds) {
  std::vector<Range> runs;
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (!holds(i)) continue;
    if (runs.empty() || runs.back().end != i) runs.push_back({i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

/// One forward pass of one sequence.
struct Pass {
  PassKind kind = PassKind::full;
  Range ids;           ///< computed
  Range decide;        ///< whose logits are wanted; empty: none
  int64_t length = 0;  ///< tokens that exist for it
};

/// The way of one sequence through its blocks, pass by pass.
class BlockWalk {
 public:
  virtual ~BlockWalk() = default;
  /// The next pass; nothing: the sequence has ended.
  virtual std::optional<Pass> next() = 0;
  /// What a pass committed.
  virtual void commit(const Pass& pass, const std::vector<Prediction>& chosen) = 0;

  /// Prompt and what stands behind it, masks included.
  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t prompt() const { return prompt_; }
  /// First tokens whose keys and values stand in a cache of finished blocks as they will stay.
  virtual int64_t kept() const { return 0; }
  /// Whether a rule that edits may replace what stands at a position of the block.
  bool may_edit(int64_t position) const { return policy_.edits() && position >= prompt_; }
  /// Generated tokens that no pass will change: up to the first mask, and of a rule that edits up
  /// to the block that is not finished.
  int64_t settled() const;
  /// Generated tokens of the result: at most what was asked for, up to and with the end of text.
  std::vector<int32_t> generated() const;
  /// Whether an end of text stands in the result.
  bool ended() const;
  UnmaskingPolicy& rule() { return *rule_; }
  /// Runs of tokens of `range` that no pass has decided: masks, or of a canvas those that the last
  /// pass did not accept.
  virtual std::vector<Range> undecided(Range range) const;
  /// Canvases: f32 [tokens of the canvas, vocabulary] that condition the next pass; null: none.
  virtual const tensor::Tensor* earlier() const { return nullptr; }
  /// Ends the walk from outside, as a stop string does.
  void cancel() { done_ = true; }

 protected:
  BlockWalk(const std::vector<int32_t>& prompt, int64_t limit, const DecodingPolicy& policy,
            const SpecialIds& special, bool block_causal,
            std::unique_ptr<UnmaskingPolicy> rule = nullptr);
  int64_t masks_in(Range range) const;
  /// Position of the first end of text in a range, or its end.
  int64_t first_end(Range range) const;
  void write(const std::vector<Prediction>& chosen);

  std::vector<int32_t> ids_;
  int64_t prompt_ = 0, limit_ = 0;
  DecodingPolicy policy_;
  SpecialIds special_;
  std::unique_ptr<UnmaskingPolicy> rule_;
  Range block_;
  bool open_ = false;  // passes may still change what stands in the block
  bool done_ = false;
};

/// Tokens of a sequence from its first pass to its last: prompt, what may follow it, and what fills
/// the last block of a block-causal model.
int64_t sequence_length(int64_t prompt, int64_t max_tokens, const DecodingPolicy& policy,
                        bool block_causal);

/// The walk of a bidirectional model (blocks from the end of the prompt) or of a block-causal one
/// (blocks at multiples of their length). `kept`: first tokens of the prompt that the cache of
/// finished blocks holds already. Throws Error(usage) for a mask in the prompt, or lengths that do
/// not fit.
std::unique_ptr<BlockWalk> block_walk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                                      const DecodingPolicy& policy, const SpecialIds& special,
                                      bool block_causal, int64_t kept = 0);

}  // namespace tessera::sample
