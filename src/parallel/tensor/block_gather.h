#pragma once

#include <optional>

#include "comm/collectives.h"
#include "nn/seams.h"

namespace tessera::parallel {

/// Gathers blocks whose weights the ranks of shard= have in equal runs (after FSDP, Zhao et al.
/// 2023, section 3.2): while one computes, the next one's travel; all is let go behind it. At most
/// one block and what is under way of another are here, beside the rank's own. Of one request.
class BlockGather final : public nn::Gather {
 public:
  /// `ranks` must outlive it. `operation`: what its messages are called.
  explicit BlockGather(comm::Communicator& ranks, const char* operation = "weights")
      : ranks_(ranks), operation_(operation) {}

  /// A pass over the blocks begins; whether another one follows it.
  void begin(bool another) { another_ = another; }
  tensor::Tensor bytes(int block, const nn::SpreadBlocks& of) override;
  /// Beside a block that is under way; of large ones not all travels at once.
  tensor::Tensor whole(const tensor::Tensor& mine, std::span<const nn::Range> runs) override;

 private:
  comm::Exchange launch(int block, const nn::SpreadBlocks& of);

  comm::Communicator& ranks_;
  const char* operation_;
  bool another_ = false;
  int next_ = -1;  // the block that is under way
  std::optional<comm::Exchange> under_way_;
  tensor::Tensor block_;  // whose turn it is
};

}  // namespace tessera::parallel
