#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::tensor {

/// Counts a rank's finished pieces of work (tasks of ops, packed weights) as a sign of life for
/// others. Thread-safe.
using WorkCount = std::atomic<uint64_t>;

/// The count of the calling thread; null if unwatched.
WorkCount* work_count();
/// Adds a piece of work.
void count_work();

/// Binds a count to the calling thread until destruction; null: none.
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
