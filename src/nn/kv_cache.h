#pragma once

#include <utility>
#include <vector>

#include "nn/block_stack.h"

namespace tessera::nn {

/// Keys and values by (attention site, sequence, id), each slot with the step that wrote it. A
/// sequence's text, ids -P to -1, stands before its body. Stale keys of patches and shards and the
/// caches of language models (prefix, dual, vicinity, block) are this table under other rules of
/// refreshing. Belongs to one request.
class KvCache {
 public:
  /// `sequences`: the ids of each sequence; so many slots are made for a site when it is first
  /// written, in the dtype of what is written: no more and no less. `heads`: which part of each
  /// site's heads.
  KvCache(const Geometry& geometry, std::vector<Range> sequences, Shard heads = {});

  /// Keeps k and v [tokens, kv_heads * head_dim] of the tokens of `segments`, over what was there.
  void write(int site, const Segments& segments, const Tensor& k, const Tensor& v, int step);
  /// Keys and values of all slots of a site: [slots, width] each.
  std::pair<Tensor, Tensor> table(int site) const;
  /// Where ids of a sequence stand in the table. Throws Error(usage) naming a slot that was never
  /// written, but on meta, where passes are left out.
  Range places(int site, int sequence, Range ids) const;
  /// Keys and values of ids of a sequence, as views.
  std::pair<Tensor, Tensor> read(int site, int sequence, Range ids) const;
  /// The step that wrote a slot; -1: never written.
  int written(int site, int sequence, int64_t id) const;
  /// The ids of a sequence that a site keeps: text only where it takes part.
  Range ids(int site, int sequence) const;
  /// Heads of queries, and of keys, of a site.
  std::pair<int, int> heads(int site) const;
  /// Bytes of all slots.
  int64_t bytes() const;

  /// Other sequences from now on: each that was there with the ids it had, or with none, and then
  /// its slots are gone; behind them new ones, of which nothing was written. Throws Error(usage).
  void renew(std::vector<Range> sequences);

  /// Keys and values of all slots by site, undefined where nothing was written: what a cache leaves
  /// to another one of the same sites.
  using Tables = std::vector<std::pair<Tensor, Tensor>>;
  /// Gives them away; it is as if nothing had been written.
  Tables release();
  /// The ids 0 to `tokens` of a sequence are what the first sequence of the cache had that released
  /// the tables. These count in the caller's scope; each goes when it is copied. Throws
  /// Error(usage) for tables of other sites, or with fewer slots.
  void adopt(int sequence, int64_t tokens, Tables tables);

 private:
  struct Site {
    Tensor k, v;               // [slots, width]
    std::vector<int> written;  // by slot
  };
  int64_t place(int site, int sequence, int64_t id) const;
  void make(int site, const Tensor& like);

  const Geometry& geometry_;
  std::vector<Range> sequences_;
  std::vector<int64_t> first_[2];  // slot of a sequence, without text and with it; then all slots
  Shard heads_;
  std::vector<Site> sites_;
};

}  // namespace tessera::nn
