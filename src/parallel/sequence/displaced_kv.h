#pragma once

#include <map>
#include <vector>

#include "comm/collectives.h"
#include "nn/kv_attention.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Attention over shards of the same sequences, including joint text: each rank caches keys and
/// values of all tokens. In a fresh step all are fresh; otherwise a shard sees its own fresh ones
/// and those of other shards from the step before (DistriFusion, Li et al. 2024). A rank holds
/// one shard or several in turn; equal numbers of shards give the same bits on any number of
/// ranks.
class DisplacedKv : public nn::KvAttention {
 public:
  /// `group`: the ranks `ranks` of the partition; null: a single rank. Both must outlive this; the
  /// partition may change between steps if all are fresh. `sequences`: the ids of each sequence.
  /// `shards`: those of this rank, in order; at most one: all tokens.
  DisplacedKv(const nn::Geometry& geometry, std::vector<nn::Range> sequences,
              comm::Communicator* group, std::vector<int> ranks, const Partition& partition,
              std::vector<nn::TokenView> shards = {});

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;
  void finish() override { arrivals_.clear(); }

 protected:
  void keep(int site, const nn::TokenView& view, const nn::Qkv& heads) override;

 private:
  /// Messages of a step: keys, then values, of each rank.
  struct Arrivals {
    comm::Exchange parts;
    int step = 0, patch = -1;
  };
  void commit(int site);
  void exchange(int site, const nn::TokenView& view, const nn::Qkv& heads);
  /// The view of a shard; its own keys and values are still old.
  nn::Tensor seen_by(const nn::TokenView& shard, int site, const nn::TokenView& view,
                     const nn::Qkv& heads);

  comm::Communicator* group_;
  std::vector<int> ranks_;
  const Partition& partition_;
  std::vector<nn::TokenView> shards_;
  std::map<int, Arrivals> arrivals_;  // by site
};

}  // namespace tessera::parallel
