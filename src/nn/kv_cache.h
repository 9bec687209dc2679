#pragma once

#include <span>
#include <utility>
#include <vector>

#include "nn/block_stack.h"

namespace tessera::nn {

/// Keys and values by (attention site, sequence, id), each slot with the step of its last write. A
/// sequence's text, ids -P to -1, precedes its body. Stale keys of patches and shards and the
/// caches of language models (prefix, dual, vicinity, block) use this table with different refresh
/// rules. Belongs to a single request.
class KvCache {
 public:
  /// `sequences`: the ids of each sequence. A site gets exactly this many slots at
  /// its first write, in the dtype of the data. `heads`: the part of each site's
  /// heads.
  KvCache(const Geometry& geometry, std::vector<Range> sequences, Shard heads = {});

  /// Writes k and v [tokens, kv_heads * head_dim] of the tokens of `segments`.
  void write(int site, const Segments& segments, const Tensor& k, const Tensor& v, int step);
  /// Keys and values of all slots of a site: [slots, width] each.
  std::pair<Tensor, Tensor> table(int site) const;
  /// Places of a sequence's ids in the table. Throws Error(usage) for an unwritten slot, except on
  /// meta, which skips passes.
  Range places(int site, int sequence, Range ids) const;
  /// Keys and values of ids of a sequence, as views.
  std::pair<Tensor, Tensor> read(int site, int sequence, Range ids) const;
  /// The step of a slot's last write; -1: never written.
  int written(int site, int sequence, int64_t id) const;
  /// The same for all ids() of a sequence, in order; empty before the first write at the site.
  std::span<const int> written(int site, int sequence) const;
  /// The cached ids of a sequence at a site: text only at joint sites.
  Range ids(int site, int sequence) const;
  /// Query heads and key heads of a site.
  std::pair<int, int> heads(int site) const;
  /// Bytes of all slots.
  int64_t bytes() const;

  /// Changes the sequences: an earlier one keeps its ids or has none, and loses its slots; new ones
  /// follow, unwritten. Throws Error(usage).
  void renew(std::vector<Range> sequences);

  /// Keys and values of all slots by site, undefined if unwritten: handed from a cache to another
  /// with the same sites.
  using Tables = std::vector<std::pair<Tensor, Tensor>>;
  /// Gives the tables away and leaves the cache unwritten.
  Tables release();
  /// Sets ids 0 to `tokens` of a sequence from the first sequence of the cache behind the tables.
  /// Tables count in the caller's scope; each is freed after its copy. Throws Error(usage) for
  /// tables of other sites, or with fewer slots.
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
