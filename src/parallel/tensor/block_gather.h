#pragma once

#include <limits>
#include <optional>

#include "comm/collectives.h"
#include "nn/seams.h"

namespace tessera::parallel {

/// Gathers blocks from equal runs on the ranks of shard= (FSDP, Zhao et al. 2023, section 3.2):
/// while a block computes, the next one travels; each is released after use. Holds a block and
/// parts of another, besides the rank's own. For a single request.
class BlockGather final : public nn::Gather {
 public:
  /// `ranks` must outlive this object. `operation`: the name of its messages.
  explicit BlockGather(comm::Communicator& ranks, const char* operation = "weights")
      : ranks_(ranks), operation_(operation) {}

  /// Starts a pass over the blocks; `call_follows`: another pass comes.
  void begin(bool call_follows) {
    call_follows_ = call_follows;
    end_ = std::numeric_limits<int64_t>::max();
  }
  /// Blocks from `end` on may be left out of this pass: none of them travels ahead.
  void until(int end) {
    end_ = end;
    call_follows_ = false;
  }
  tensor::Tensor bytes(int block, const nn::ShardedBlocks& shards) override;
  /// Gathers beside a block under way; large tensors travel in parts.
  tensor::Tensor whole(const tensor::Tensor& own_part, std::span<const nn::Range> runs) override;

 private:
  comm::Exchange launch(int block, const nn::ShardedBlocks& shards);

  comm::Communicator& ranks_;
  const char* operation_;
  bool call_follows_ = false;
  int64_t end_ = std::numeric_limits<int64_t>::max();
  int next_ = -1;  // the block under way
  std::optional<comm::Exchange> under_way_;
  tensor::Tensor block_;  // the current block
};

}  // namespace tessera::parallel
