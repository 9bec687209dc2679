#pragma once

#include "nn/kv_cache.h"
#include "ops/attention.h"

namespace tessera::nn {

/// Attention over cached slots: tokens of a view write their keys and values, then attend to the
/// visible slots of their sequence: view.lengths of them if given, with a causal_block the blocks
/// up to their own. Slots outside the view keep the values of an earlier call.
class KvAttention : public Attention {
 public:
  /// `sequences`: the ids of each sequence, text included.
  KvAttention(const Geometry& geometry, std::vector<Range> sequences, Shard heads = {})
      : geometry_(geometry), slots_(geometry, std::move(sequences), heads) {}
  Tensor attend(int site, const TokenView& view, const Qkv& heads) override;
  /// Scores of later calls, as in ops/attention.h.
  void use_int8_scores(bool use) { int8_scores_ = use; }
  const KvCache& slots() const { return slots_; }
  KvCache& slots() { return slots_; }
  /// Reads of keys and values 0, 1, ... steps old, counted by call and token; for views without
  /// lengths.
  const std::vector<int64_t>& ages() const { return ages_; }

 protected:
  /// Writes the results of a call: by default, for its own tokens.
  virtual void keep(int site, const TokenView& view, const Qkv& heads);
  /// Attention of a view's queries over the slots.
  Tensor seen(int site, const TokenView& asking, const Tensor& q,
              const ops::AttentionOptions& options = {}) const;
  /// Counts the reads of a call: all slots of its sequences, once.
  void count_ages(int site, const TokenView& view);
  void write(int site, const Segments& segments, const Tensor& k, const Tensor& v, int step) {
    slots_.write(site, segments, k, v, step);
  }
  const AttentionSite& site_of(int site) const {
    return geometry_.attention.at(static_cast<size_t>(site));
  }

 private:
  const Geometry& geometry_;
  KvCache slots_;
  std::vector<int64_t> ages_;
  bool int8_scores_ = false;
};

/// The tokens of a view in the order of a seam's tensors: text tokens first, if present.
Segments tokens_of(const TokenView& view, bool text);
/// The ids of sequences of these lengths, without text.
std::vector<Range> sequences_of_lengths(const std::vector<int64_t>& lengths);

}  // namespace tessera::nn
