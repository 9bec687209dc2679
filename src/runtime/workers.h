#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/scope.h"
#include "tessera/report.h"
#include "tessera/request.h"

namespace tessera::runtime {

/// Meters of the ranks of a single request, separate from other requests at the same time.
struct RunMeters {
  struct Rank {
    std::shared_ptr<tensor::Meter> work;
    std::shared_ptr<tensor::MemoryTracker> memory;
  };
  /// `ranks`: as in Workers; 0 counts as 1.
  explicit RunMeters(size_t ranks = 0);
  /// The same meters with new counts for the ranks.
  RunMeters anew() const;
  std::shared_ptr<tensor::Meter> all = std::make_shared<tensor::Meter>();
  std::shared_ptr<tensor::MemoryTracker> memory = std::make_shared<tensor::MemoryTracker>();
  std::vector<Rank> ranks;  ///< ranks of this process; `all` and `memory` include them
};

/// The peak of each class of memory.
MemoryPeaks peaks_of(const tensor::MemoryTracker& memory);
/// A rank's work, from the counts in its scope.
Report::Rank work_of(const tensor::Scope& rank, int64_t sent_bytes);

/// The threads of a model, shared by its requests.
struct Workers {
  /// As options say: threads are divided over the ranks of this process.
  void start(const RunOptions& options);
  /// The scope of a rank's work; -1: the process. Without meters the scope counts nothing.
  tensor::Scope scope(int rank = -1, const RunMeters* meters = nullptr) const;

  std::unique_ptr<base::ThreadPool> pool;  ///< all threads; null: the caller's alone
  /// pools of ranks that are threads of this process, if several
  std::vector<std::unique_ptr<base::ThreadPool>> ranks;
  tensor::Assumptions assumptions{};  ///< assumptions of ranks on meta
};

}  // namespace tessera::runtime
