#pragma once

#include "nn/kv_cache.h"
#include "ops/attention.h"

namespace tessera::nn {

/// Attention over slots: the tokens of a view write their keys and values and ask all slots of
/// their sequence that they may see: view.lengths of them where a view says so, with a causal_block
/// the blocks up to their own. What a view leaves out is read as an earlier call left it.
class KvAttention : public Attention {
 public:
  /// `sequences`: the ids of each sequence, text included.
  KvAttention(const Geometry& geometry, std::vector<Range> sequences, Shard heads = {})
      : geometry_(geometry), slots_(geometry, std::move(sequences), heads) {}
  Tensor attend(int site, const TokenView& view, const Qkv& heads) override;
  const KvCache& slots() const { return slots_; }
  KvCache& slots() { return slots_; }
  /// How often the keys and values of a token were read by a call that were 0, 1, ... steps old; of
  /// views without lengths.
  const std::vector<int64_t>& ages() const { return ages_; }

 protected:
  /// Writes what a call has computed: by default, of its own tokens.
  virtual void keep(int site, const TokenView& view, const Qkv& heads);
  /// What queries of the tokens of a view see in the slots.
  Tensor seen(int site, const TokenView& asking, const Tensor& q,
              const ops::AttentionOptions& options = {}) const;
  /// Counts what a call reads: all slots of its sequences, once.
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
};

/// The tokens of a view as a seam's tensors have them: those of the text, if it takes part, first.
Segments tokens_of(const TokenView& view, bool text);
/// The ids of sequences of these lengths, without text.
std::vector<Range> sequences_of_lengths(const std::vector<int64_t>& lengths);

}  // namespace tessera::nn
