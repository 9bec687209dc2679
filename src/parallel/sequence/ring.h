#pragma once

#include <vector>

#include "comm/communicator.h"
#include "nn/kv_attention.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Attention of ranks that hold different tokens of the same sequences, by keys: keys and values
/// go round from rank to rank while each attends to those it has (Ring Attention, Liu et al. 2023).
/// What a query sees of each rank's keys is f32 and is put together in the order of the ranks, so
/// it depends neither on time nor on who holds the query.
class Ring final : public nn::Attention {
 public:
  /// `holders`: for each rank of the group those of the partition whose tokens it is given, itself
  /// or, within Ulysses, all of its group. What is passed outlives this.
  Ring(const nn::Geometry& geometry, comm::Communicator& group,
       std::vector<std::vector<int>> holders, const Partition& partition)
      : geometry_(geometry), group_(group), holders_(std::move(holders)), partition_(partition) {}

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;

 private:
  const nn::Geometry& geometry_;
  comm::Communicator& group_;
  std::vector<std::vector<int>> holders_;
  const Partition& partition_;
};

/// The same of patches, whose keys and values outlive a call: those stay in slots of the ranks
/// whose tokens they are. Queries go to all other ranks, and what they see there comes back.
class QueryRing final : public nn::KvAttention {
 public:
  /// As Ring.
  QueryRing(const nn::Geometry& geometry, comm::Communicator& group,
            std::vector<std::vector<int>> holders, const Partition& partition);

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;

 protected:
  void keep(int site, const nn::TokenView& view, const nn::Qkv& heads) override;

 private:
  comm::Communicator& group_;
  std::vector<std::vector<int>> holders_;
  const Partition& partition_;
  nn::TokenView mine_;  // of all patches
};

}  // namespace tessera::parallel
