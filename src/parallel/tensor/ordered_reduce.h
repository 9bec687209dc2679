#pragma once

#include "comm/communicator.h"
#include "nn/seams.h"

namespace tessera::parallel {

/// Sums over a group in the order of ranks: each rank sums and finishes a run of rows for the
/// others. Each sends (N - 1) / N of the sum in f32, and as much of the result. Rows go in
/// chunks: while a chunk travels, the next is computed. The number of chunks does not change
/// results.
class OrderedReduce final : public nn::Reduce {
 public:
  /// A smaller chunk costs more in messages and reads of the weights than gained by overlap; many
  /// chunks leave little to overlap.
  static constexpr int64_t kLeastRows = 128, kMostChunks = 4;

  /// `least`: rows of a chunk.
  explicit OrderedReduce(comm::Communicator& group, int64_t least = kLeastRows)
      : group_(group), least_(least) {}
  nn::Tensor sum(int64_t rows, const Part& part, const Finish& finish) override;

 private:
  std::vector<nn::Range> chunks_of(int64_t rows) const;

  comm::Communicator& group_;
  int64_t least_;
};

}  // namespace tessera::parallel
