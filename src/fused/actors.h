#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "fused/operator.h"

namespace tessera::fused {

/// Runs a rank's operators on the threads of its scope: each thread is an actor and executes a
/// processor's task, first tasks that others wait for (rows that leave or have arrived), then
/// products; idle actors look for arrivals. Actors replace each other, so a single
/// thread is enough, and no thread is made for a layer. After all have waited for other ranks
/// for kStay, they release their threads together until an arrival, for other requests on these
/// threads.
class Actors {
 public:
  static constexpr std::chrono::milliseconds kStay{20};

  /// The operators must outlive this object, and share the ranks of their heaps. Waits as long as
  /// those.
  explicit Actors(std::vector<MoeOperator*> operators);
  explicit Actors(MoeOperator& op) : Actors(std::vector<MoeOperator*>{&op}) {}

  /// A layer, on all ranks alike. Actors share the caller's scope, except its threads, and its stop
  /// request. Throws Error(cancelled) after a stop, the error behind the end of the ranks' world,
  /// and Error(rank) with the missing arrival when no rank makes progress within the deadline. An
  /// error of an actor ends the world at once.
  nn::Tensor run(const nn::Tensor& tokens, const nn::Gate& gate, const nn::ExpertWeights& weights);
  /// Runs all operators with a layer until over(); what is not done then goes on in the next call.
  /// over() may read the operators, and must come true by their progress alone.
  void drive(const std::function<bool()>& over);

 private:
  class Rest;
  void start();
  void act();
  void wait_alone();
  bool called() const;
  int awaited();
  bool poll();
  bool work();
  bool work(bool products);
  [[noreturn]] void stand_still(double seconds);

  comm::Communicator& ranks() const { return operators_[0]->heap().ranks(); }

  const std::vector<MoeOperator*> operators_;
  const std::function<bool()>* over_ = nullptr;
  std::mutex polling_;                                    // guards the coordinators
  std::unique_ptr<std::atomic<bool>[]> processor_locks_;  // by processor, operator by operator
  std::atomic<bool> done_{true}, failed_{false};
  std::atomic<bool> resting_{false};   // all actors leave
  std::atomic<int> busy_{0};           // actors with a task
  std::atomic<uint64_t> activity_{0};  // number of tasks found by actors
};

}  // namespace tessera::fused
