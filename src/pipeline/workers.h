#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/scope.h"
#include "tessera/request.h"

namespace tessera::pipeline {

/// What the ranks of one request do, apart from what other requests do at the same time.
struct RunMeters {
  explicit RunMeters(size_t ranks = 0);
  std::shared_ptr<tensor::Meter> all = std::make_shared<tensor::Meter>();
  std::vector<std::shared_ptr<tensor::Meter>> ranks;  ///< that are threads, where there are several
};

/// What a model computes with, shared by its requests: threads, and accounts of memory.
struct Workers {
  /// Of one rank that is a thread of this process.
  struct Rank {
    std::unique_ptr<base::ThreadPool> pool;  ///< its part of all threads
    std::shared_ptr<tensor::MemoryTracker> memory;
  };

  /// As options say: threads are divided over the ranks of this process.
  void start(const RunOptions& options);
  /// What surrounds the work of a rank; -1: of the process.
  tensor::Scope scope(int rank = -1, const RunMeters* meters = nullptr) const;

  std::unique_ptr<base::ThreadPool> pool;  ///< all threads; null: the caller's alone
  std::shared_ptr<tensor::MemoryTracker> memory = std::make_shared<tensor::MemoryTracker>();
  std::vector<Rank> ranks;  ///< where there are several
};

}  // namespace tessera::pipeline
