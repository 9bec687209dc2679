#pragma once

#include <map>
#include <vector>

#include "comm/collectives.h"
#include "nn/kv_attention.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Attention of ranks that hold different tokens of the same sequences: each keeps the keys and
/// values of all of them. In a fresh step all are of this step; else those of other ranks are of
/// the step before (DistriFusion, Li et al. 2024).
class DisplacedKv : public nn::KvAttention {
 public:
  /// `group`: the ranks `ranks` of the partition. Both outlive this; the partition may change from
  /// one step to the next where all steps are fresh. `sequences`: the ids of each sequence.
  DisplacedKv(const nn::Geometry& geometry, std::vector<nn::Range> sequences,
              comm::Communicator& group, std::vector<int> ranks, const Partition& partition);

  void finish() override { arriving_.clear(); }

 protected:
  void keep(int site, const nn::TokenView& view, const nn::Qkv& body) override;

 private:
  /// What others sent in a step: of each its keys, then its values.
  struct Arriving {
    comm::Exchange parts;
    int step = 0, patch = -1;
  };
  void commit(int site);

  comm::Communicator& group_;
  std::vector<int> ranks_;
  const Partition& partition_;
  std::map<int, Arriving> arriving_;  // by site
};

}  // namespace tessera::parallel
