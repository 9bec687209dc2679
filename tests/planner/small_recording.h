#pragma once

#include "planner/recording.h"

namespace tessera::planner {

/// Two ranks: in each step each rank computes an op of 1e9 FLOPs and then receives `bytes` from the
/// other rank. `steps` steps, of which `kept` are recorded. `backwards`: rank 1 reports first.
inline Recording two_ranks(int steps, int kept, int64_t bytes, bool backwards = false) {
  Recorder recorder(2);
  const auto tell = [&](int rank) {
    tensor::RunWatcher* const watcher = recorder.root()->of_rank(rank);
    watcher->part("prepare", 0);
    uint64_t order = 0;
    for (int s = 0; s < kept; ++s) {
      watcher->part("step", s);
      watcher->expects(1 - rank, 7, order);
      watcher->op("matmul", 1e9, 0, {128, 128, 128, tensor::DType::bf16});
      watcher->sends(1 - rank, 7, bytes, "exchange", 0, 1);
      watcher->waits(1 - rank, 7, order++);
    }
    watcher->part("gather", 0);
    watcher->part("", 0);
  };
  for (const int rank : {0, 1}) tell(backwards ? 1 - rank : rank);
  return recorder.take(steps, 1);
}

}  // namespace tessera::planner
