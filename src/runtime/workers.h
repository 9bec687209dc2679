#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/scope.h"
#include "tessera/report.h"
#include "tessera/request.h"

namespace tessera::runtime {

/// What the ranks of one request do and hold, apart from what other requests do at the same time.
struct RunMeters {
  struct Rank {
    std::shared_ptr<tensor::Meter> work;
    std::shared_ptr<tensor::MemoryTracker> memory;
  };
  /// `ranks`: as many as Workers have; 0 is one as well.
  explicit RunMeters(size_t ranks = 0);
  /// The same, but its ranks have done and held nothing yet.
  RunMeters anew() const;
  std::shared_ptr<tensor::Meter> all = std::make_shared<tensor::Meter>();
  std::shared_ptr<tensor::MemoryTracker> memory = std::make_shared<tensor::MemoryTracker>();
  std::vector<Rank> ranks;  ///< of this process; they count in `all` and `memory` as well
};

/// The most that was held at once.
MemoryPeaks peaks_of(const tensor::MemoryTracker& memory);
/// What a rank did, as its scope counts it.
Report::Rank work_of(const tensor::Scope& rank, int64_t sent);

/// The threads that a model computes with, shared by its requests.
struct Workers {
  /// As options say: threads are divided over the ranks of this process.
  void start(const RunOptions& options);
  /// What surrounds the work of a rank; -1: of the process. Without meters nothing is counted.
  tensor::Scope scope(int rank = -1, const RunMeters* meters = nullptr) const;

  std::unique_ptr<base::ThreadPool> pool;  ///< all threads; null: the caller's alone
  /// Of each rank that is a thread of this process, where there are several.
  std::vector<std::unique_ptr<base::ThreadPool>> ranks;
  tensor::Assumptions assumptions{};  ///< of ranks on meta
};

}  // namespace tessera::runtime
