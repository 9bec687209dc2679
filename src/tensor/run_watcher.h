#pragma once

#include <chrono>
#include <cstdint>

#include "tensor/tensor.h"

namespace tessera::tensor {

/// Sizes that determine the cost of an op: [rows, depth] x [depth, columns] for a product; for
/// attention `rows` queries with `columns` channels and `depth` per head; [rows, columns] for other
/// ops.
struct OpSize {
  int64_t rows = 0, columns = 0, depth = 0;
  DType dtype = DType::f32;
};

/// Observes a rank's ops and messages in order, without effect on results. Used only by the rank's
/// thread.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  /// The watcher of a rank started by the watched thread; null: the rank is not watched. May be
  /// called on any thread.
  virtual RunWatcher* of_rank(int rank) = 0;
  /// The same of a rank that computes; dry runs ask the other one.
  virtual RunWatcher* of_real_rank(int) { return nullptr; }
  virtual void op(const char* kind, double flops, double bytes, const OpSize& size) = 0;
  /// A message is sent, a receive is posted, or a receive is waited for. `peer` is a rank of the
  /// world, `order` the number of the message in its channel and pair of ranks; `count`: a dry run
  /// sends one message in place of so many.
  virtual void sends(int peer, uint64_t channel, int64_t bytes, const char* operation, int site,
                     int64_t count) = 0;
  virtual void expects(int peer, uint64_t channel, uint64_t order) = 0;
  virtual void waits(int peer, uint64_t channel, uint64_t order) = 0;
  /// The wait is over; the message was there at `when`.
  virtual void arrives(int, uint64_t, uint64_t, std::chrono::steady_clock::time_point) {}
  /// A part of the run begins: "prepare", "step" with its number, "gather", "decode"; "" ends it.
  virtual void part(const char* name, int number) = 0;
};

/// The calling thread's watcher; null: none.
RunWatcher* run_watcher();
/// Binds a watcher to the calling thread until destruction; null: none.
class BindRunWatcher {
 public:
  explicit BindRunWatcher(RunWatcher* watcher);
  ~BindRunWatcher();
  BindRunWatcher(const BindRunWatcher&) = delete;
  BindRunWatcher& operator=(const BindRunWatcher&) = delete;

 private:
  RunWatcher* before_;
};

/// Notifies the thread's watcher, if any, of the beginning of a part.
void watch_part(const char* name, int number = 0);
/// Whether an op is counted or watched here.
bool counts_ops();
/// Adds an op to the meter of the current scope, and tells the thread's watcher.
void count_op(const char* kind, double flops, double bytes, const OpSize& size);
/// Sizes of an element-wise op on `x`.
OpSize op_size(const Tensor& x);

}  // namespace tessera::tensor
