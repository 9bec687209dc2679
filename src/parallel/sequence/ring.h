#pragma once

#include <vector>

#include "comm/communicator.h"
#include "nn/kv_attention.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Ring Attention (Liu et al. 2023) among ranks with different tokens of the same sequences: keys
/// and values circulate while each rank attends to the present ones. Results for each rank's keys
/// are f32 and merged in the order of ranks, so they depend neither on time nor on the owner of the
/// query.
class Ring final : public nn::Attention {
 public:
  /// `holders`: for each rank of the group, the ranks of the partition with its tokens: itself or,
  /// within Ulysses, its whole group. Arguments must outlive this object.
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

/// The same for patches, with cached keys and values: the cache stays with the owner of the tokens.
/// Queries go to all other ranks, and results come back.
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
  nn::TokenView own_view_;  // all patches
};

}  // namespace tessera::parallel
