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

/// Work that ops did or, on meta, would do: floating-point operations and bytes of memory traffic
/// (each operand and result once), by op. Thread-safe.
class Meter {
 public:
  struct Entry {
    int64_t calls = 0;
    double flops = 0, bytes = 0;
  };
  /// `whole`: gets everything that this one gets as well, such as a process that of its ranks.
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

/// What a run on meta takes for granted where the real run reads elements.
struct Assumptions {
  /// Share of a layer's experts that get at least one token, 0..1.
  double touched_experts = 1.0;
  /// The rows of each expert of a layer, to any scale; empty: alike in all that are touched.
  std::vector<double> expert_load{};
};

/// What surrounds the ops of a thread. It may change speed and accounting, never results.
struct Scope {
  base::ThreadPool* pool = nullptr;       ///< null: the calling thread alone
  std::shared_ptr<MemoryTracker> memory;  ///< null: not counted
  std::shared_ptr<Meter> meter;           ///< null: not counted
  Assumptions assumptions;
  void* stream = nullptr;          ///< device queue; null: the device's own
  Recording* recording = nullptr;  ///< of what goes to that queue, if it is recorded, not done
  int64_t arena = 0;               ///< of the device's pool, for its memory; 0: none
};

/// The scope bound to the calling thread; an empty one if none is.
const Scope& current_scope();

/// Binds a scope to the calling thread until the end of its life.
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

/// pool->run of the current scope, or a plain loop without one.
void parallel_tasks(int64_t count, const std::function<void(int64_t task)>& task);
/// pool->parallel_for of the current scope, or one call without a pool.
void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body);
/// Threads of the current scope's pool, 1 without one.
int thread_count();

}  // namespace tessera::tensor
