#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/storage.h"

namespace tessera::tensor {

class Recording;

/// Work of ops, done or (on meta) predicted: floating-point operations and bytes of memory traffic
/// (each operand and result once), by op. Thread-safe.
class Meter {
 public:
  struct Entry {
    int64_t calls = 0;
    double flops = 0, bytes = 0;
  };
  /// `whole`: an outer meter, such as a process's meter over its ranks; receives all counts, too.
  explicit Meter(std::shared_ptr<Meter> whole = nullptr) : whole_(std::move(whole)) {}
  void add(const char* op, double flops, double bytes);
  void add(const std::map<std::string, Entry>& entries);
  std::map<std::string, Entry> entries() const;
  Entry total() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  const std::shared_ptr<Meter> whole_;
};

/// Assumptions of a run on meta about elements that the real run reads.
struct Assumptions {
  /// Share of a layer's experts with at least one token, 0..1.
  double touched_experts = 1.0;
  /// Relative rows of each expert of a layer, to any scale; empty: equal for all touched experts.
  std::vector<double> expert_load{};
};

/// The environment of a thread's ops. A scope may change speed and accounting, never results.
struct Scope {
  base::ThreadPool* pool = nullptr;       ///< null: the calling thread alone
  std::shared_ptr<MemoryTracker> memory;  ///< null: not counted
  std::shared_ptr<Meter> meter;           ///< null: not counted
  Assumptions assumptions;
  void* stream = nullptr;          ///< device queue; null: the device's own
  Recording* recording = nullptr;  ///< the recording of the stream's work; null: work runs
  int64_t arena = 0;               ///< arena of the device's pool for new memory; 0: none
};

/// The scope bound to the calling thread; by default an empty scope.
const Scope& current_scope();

/// Binds a scope to the calling thread until destruction.
class BindScope {
 public:
  explicit BindScope(const Scope& scope);
  ~BindScope();
  BindScope(const BindScope&) = delete;
  BindScope& operator=(const BindScope&) = delete;

 private:
  Scope scope_;
  const Scope* before_;
};

/// pool->run of the current scope, or a plain loop without a pool.
void parallel_tasks(int64_t count, const std::function<void(int64_t task)>& task);
/// pool->parallel_for of the current scope, or a single call without a pool.
void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body);
/// Threads of the current scope's pool; 1 without a pool.
int thread_count();

}  // namespace tessera::tensor
