#pragma once

#include "comm/communicator.h"
#include "nn/seams.h"

namespace tessera::parallel {

/// Sums over a group in the order of its ranks: each sums and finishes a run of rows, which the
/// others then get. Each sends (N - 1) / N of the sum in f32, and as much of what is finished. It
/// goes by chunks of rows: while one travels, the part of the next is computed. The number of
/// chunks changes no bit.
class OrderedReduce final : public nn::Reduce {
 public:
  /// A chunk of fewer rows costs its messages and another reading of the weights more than hiding
  /// them gains; more chunks than a few leave little to be hidden.
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
