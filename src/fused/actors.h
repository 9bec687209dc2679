#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "fused/operator.h"

namespace tessera::fused {

/// Runs a rank's operator on the threads of its scope: each thread is an actor and executes a
/// processor's task; idle actors look for arrivals. Actors replace each other, so a single
/// thread is enough, and no thread is made for a layer. After all have waited for other ranks
/// for kStay, they release their threads together until an arrival, for other requests on these
/// threads.
class Actors {
 public:
  static constexpr std::chrono::milliseconds kStay{20};

  /// The operator must outlive this object. Waits as long as the ranks of its heap.
  explicit Actors(MoeOperator& one);

  /// A layer, on all ranks alike. Actors share the caller's scope, except its threads, and its stop
  /// request. Throws Error(cancelled) after a stop, the error behind the end of the ranks' world,
  /// and Error(rank) with the missing arrival when no rank makes progress within the deadline. An
  /// error of an actor ends the world at once.
  nn::Tensor run(const nn::Tensor& tokens, const nn::Gate& gate, const nn::ExpertWeights& weights);

 private:
  class Rest;
  void start();
  void act();
  void wait_alone();
  bool called() const;
  int awaited();
  bool poll();
  bool work();
  [[noreturn]] void stand_still(double seconds);

  MoeOperator& operator_;
  std::mutex polling_;                          // guards the coordinator
  std::unique_ptr<std::atomic<bool>[]> taken_;  // by processor
  std::atomic<bool> done_{true}, failed_{false};
  std::atomic<bool> resting_{false};  // all actors leave
  std::atomic<int> busy_{0};          // actors with a task
  std::atomic<uint64_t> found_{0};    // number of tasks found by actors
};

}  // namespace tessera::fused
