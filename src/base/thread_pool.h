#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tessera::base {

/// A fixed set of threads for one job at a time; the caller takes part. A throwing task or a stop
/// request (stop.h) ends the job; the caller receives the exception.
class ThreadPool {
 public:
  /// `threads` >= 1, the caller included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Runs task(0) .. task(count - 1), in any order, each once, over the threads; returns when all
  /// are done. Nested calls (from inside a task) run on the calling thread alone.
  void run(int64_t count, const std::function<void(int64_t task)>& task);

  /// Cuts [0, count) into contiguous ranges of at least `grain` and runs body(begin, end) on each.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t begin, int64_t end)>& body);

  /// Runs body(0) .. body(n - 1) concurrently, one thread each (more threads are started if n
  /// exceeds threads()), for actors that wait for each other.
  void gang(int n, const std::function<void(int actor)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::base
