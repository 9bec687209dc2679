#pragma once

#include <chrono>
#include <cstdint>

#include "tensor/tensor.h"

namespace tessera::tensor {

/// Sizes by which the cost of an op is looked up: a product is [rows, depth] x [depth, columns];
/// attention has rows queries of so many channels (columns), depth a head; others [rows, columns].
struct OpSize {
  int64_t rows = 0, columns = 0, depth = 0;
  DType dtype = DType::f32;
};

/// Hears what a rank does, op by op and message by message, in its order. Nothing that it does
/// changes a result. Used by the rank's thread alone.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  /// The watcher of a rank of a run that the watched thread starts; null: nobody watches it. Any
  /// thread.
  virtual RunWatcher* of_rank(int rank) = 0;
  /// The same of a rank that computes; dry runs ask the other one.
  virtual RunWatcher* of_real_rank(int) { return nullptr; }
  virtual void op(const char* kind, double flops, double bytes, const OpSize& size) = 0;
  /// A message is handed over, a receive is started, its message is waited for. `peer` is a rank of
  /// the world, `order` the number of the message among those of its channel and pair of ranks.
  virtual void sends(int peer, uint64_t channel, int64_t bytes, const char* operation,
                     int site) = 0;
  virtual void expects(int peer, uint64_t channel, uint64_t order) = 0;
  virtual void waits(int peer, uint64_t channel, uint64_t order) = 0;
  /// The wait is over; the message was there at `when`.
  virtual void arrives(int, uint64_t, uint64_t, std::chrono::steady_clock::time_point) {}
  /// A part of the run begins: "prepare", "step" with its number, "gather", "decode"; "" ends it.
  virtual void part(const char* name, int number) = 0;
};

/// That of the calling thread; null: none.
RunWatcher* run_watcher();
/// Binds a watcher to the calling thread until the end of its life; null: none.
class BindRunWatcher {
 public:
  explicit BindRunWatcher(RunWatcher* watcher);
  ~BindRunWatcher();
  BindRunWatcher(const BindRunWatcher&) = delete;
  BindRunWatcher& operator=(const BindRunWatcher&) = delete;

 private:
  RunWatcher* before_;
};

/// Tells the thread's watcher, if there is one, that a part of the run begins.
void watch_part(const char* name, int number = 0);
/// Whether an op is counted or watched here.
bool counts_ops();
/// Adds an op to the meter of the current scope, and tells the thread's watcher.
void count_op(const char* kind, double flops, double bytes, const OpSize& size);
/// Sizes of an op that goes over `x` element by element.
OpSize op_size(const Tensor& x);

}  // namespace tessera::tensor
