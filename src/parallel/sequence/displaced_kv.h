#pragma once

#include <map>
#include <vector>

#include "comm/collectives.h"
#include "nn/kv_attention.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Attention of shards of the same sequences, text of joint sites among them: each rank keeps the
/// keys and values of all tokens. In a fresh step all are of this step; else a shard sees its own
/// as they are and those of the others as they were in the step before (DistriFusion, Li et al.
/// 2024). A rank is a shard, or has several, one after the other: as many shards give the same bits
/// on any number of ranks.
class DisplacedKv : public nn::KvAttention {
 public:
  /// `group`: the ranks `ranks` of the partition; null: one rank. Both outlive this; the partition
  /// may change from one step to the next where all steps are fresh. `sequences`: the ids of each
  /// sequence. `shards`: those of this rank, in order; one or none: all that it has.
  DisplacedKv(const nn::Geometry& geometry, std::vector<nn::Range> sequences,
              comm::Communicator* group, std::vector<int> ranks, const Partition& partition,
              std::vector<nn::TokenView> shards = {});

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;
  void finish() override { arriving_.clear(); }

 protected:
  void keep(int site, const nn::TokenView& view, const nn::Qkv& heads) override;

 private:
  /// What others sent in a step: of each its keys, then its values.
  struct Arriving {
    comm::Exchange parts;
    int step = 0, patch = -1;
  };
  void commit(int site);
  void exchange(int site, const nn::TokenView& view, const nn::Qkv& heads);
  /// What a shard sees; its keys and values are as they were before.
  nn::Tensor seen_by(const nn::TokenView& shard, int site, const nn::TokenView& view,
                     const nn::Qkv& heads);

  comm::Communicator* group_;
  std::vector<int> ranks_;
  const Partition& partition_;
  std::vector<nn::TokenView> shards_;
  std::map<int, Arriving> arriving_;  // by site
};

}  // namespace tessera::parallel
