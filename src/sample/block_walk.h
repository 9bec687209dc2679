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

/// Runs of numbers in a range that satisfy `holds`.
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

/// A forward pass of a single sequence.
struct Pass {
  PassKind kind = PassKind::full;
  Range ids;           ///< computed tokens
  Range decide;        ///< tokens with logits in the result; empty: none
  int64_t length = 0;  ///< tokens that the pass can attend to
};

/// The passes of a sequence through its blocks, in order.
class BlockWalk {
 public:
  virtual ~BlockWalk() = default;
  /// The next pass; none: the sequence has ended.
  virtual std::optional<Pass> next() = 0;
  /// Writes the tokens chosen after a pass.
  virtual void commit(const Pass& pass, const std::vector<Prediction>& choices) = 0;

  /// Prompt and everything after the prompt, masks included.
  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t prompt() const { return prompt_; }
  /// Number of first tokens with final keys and values in a cache of finished blocks.
  virtual int64_t kept() const { return 0; }
  /// Whether an editing rule may replace the token at a position of the block.
  bool may_edit(int64_t position) const { return policy_.edits() && position >= prompt_; }
  /// The number of generated tokens that no pass will change: up to the first mask; for an editing
  /// rule up to the unfinished block.
  int64_t settled() const;
  /// Generated tokens of the result: at most the requested number, up to and with the end of text.
  std::vector<int32_t> generated() const;
  /// Whether the result contains an end of text.
  bool ended() const;
  UnmaskingPolicy& rule() { return *rule_; }
  /// Runs of undecided tokens in `range`: masks, or on a canvas tokens that the last pass did not
  /// accept.
  virtual std::vector<Range> undecided(Range range) const;
  /// Canvases: f32 [tokens of the canvas, vocabulary] that condition the next pass; null: none.
  virtual const tensor::Tensor* earlier() const { return nullptr; }
  /// Ends the walk from outside, for example at a stop string.
  void cancel() { done_ = true; }

 protected:
  BlockWalk(const std::vector<int32_t>& prompt, int64_t limit, const DecodingPolicy& policy,
            const SpecialIds& special, bool block_causal,
            std::unique_ptr<UnmaskingPolicy> rule = nullptr);
  int64_t masks_in(Range range) const;
  /// Position of the first end of text in a range; without any the end of the range.
  int64_t first_end(Range range) const;
  void write(const std::vector<Prediction>& choices);

  std::vector<int32_t> ids_;
  int64_t prompt_ = 0, limit_ = 0;
  DecodingPolicy policy_;
  SpecialIds special_;
  std::unique_ptr<UnmaskingPolicy> rule_;
  Range block_;
  bool open_ = false;  // passes may still change the block
  bool done_ = false;
};

/// Tokens of a sequence, the same from the first pass to the last: prompt, room for the answer, and
/// padding of the last block of a block-causal model.
int64_t sequence_length(int64_t prompt, int64_t max_tokens, const DecodingPolicy& policy,
                        bool block_causal);

/// The walk of a bidirectional model (blocks from the end of the prompt) or of a block-causal model
/// (blocks at multiples of their length). `cached_tokens`: first tokens of the prompt that are in
/// the cache of finished blocks already. Throws Error(usage) for a mask in the prompt, or invalid
/// lengths.
std::unique_ptr<BlockWalk> block_walk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                                      const DecodingPolicy& policy, const SpecialIds& special,
                                      bool block_causal, int64_t cached_tokens = 0);

}  // namespace tessera::sample
