#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::tensor {

/// Counts the pieces of work that a rank has done, so that others see that it lives: tasks of ops,
/// weights that were packed. Thread-safe.
using WorkCount = std::atomic<uint64_t>;

/// The count of the calling thread; null if nobody watches it.
WorkCount* work_count();
/// Adds a piece to it.
void count_work();

/// Binds a count to the calling thread until the end of its life; null: none.
class BindWorkCount {
 public:
  explicit BindWorkCount(WorkCount* count);
  ~BindWorkCount();
  BindWorkCount(const BindWorkCount&) = delete;
  BindWorkCount& operator=(const BindWorkCount&) = delete;

 private:
  WorkCount* before_;
};

}  // namespace tessera::tensor
