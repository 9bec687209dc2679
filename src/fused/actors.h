#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "fused/operator.h"
#include "fused/thread_ranks.h"

namespace tessera::fused {

/// The operator of a rank by the threads of its scope: each is an actor that does what a processor
/// was told, and who is idle looks for what has come. An actor stands for whatever others do not:
/// one thread alone gets through, and none is made for a layer.
class Actors {
 public:
  /// `deadline`: how long it waits while no rank of the operator gets on. All outlive this.
  Actors(MoeOperator& one, ThreadRanks& ranks, std::chrono::milliseconds deadline);

  /// One layer, on all ranks alike. Actors share the caller's scope, but for its threads, and its
  /// request to stop. Throws Error(cancelled) after one, Error(rank) past the deadline, and what
  /// any rank has thrown; none of the ranks goes on after that.
  nn::Tensor run(const nn::Tensor& tokens, const nn::Gate& gate, const nn::ExpertWeights& weights);

 private:
  void act();
  bool poll();
  bool work();
  [[noreturn]] void stand_still();

  MoeOperator& operator_;
  ThreadRanks& ranks_;
  const std::chrono::milliseconds deadline_;
  std::mutex polling_;                            // who has it has the coordinator
  std::unique_ptr<std::atomic<bool>[]> at_work_;  // by processor
  std::atomic<bool> done_{true};
};

}  // namespace tessera::fused
