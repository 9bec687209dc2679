#pragma once

#include <utility>

#include "comm/communicator.h"
#include "nn/moe/sequence_peers.h"

namespace tessera::parallel {

/// Ranks of a group with tokens of the same sequences. Sums are whole numbers and independent of
/// order.
class GroupPeers final : public nn::SequencePeers {
 public:
  /// `group` must outlive this object.
  explicit GroupPeers(comm::Communicator& group) : group_(group) {}
  /// The tokens of all ranks, rank by rank, and the begin of the own ones.
  void hold(nn::Segments tokens, int64_t first) {
    tokens_ = std::move(tokens);
    first_ = first;
  }

  void sum(std::span<int64_t> values) override;
  void max(std::span<int64_t> values) override;
  tensor::Tensor gather(const tensor::Tensor& own_rows) override;
  const nn::Segments& tokens() const override { return tokens_; }
  int64_t first() const override { return first_; }

 private:
  comm::Communicator& group_;
  nn::Segments tokens_;
  int64_t first_ = 0;
};

}  // namespace tessera::parallel
