#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "fused/operator.h"

namespace tessera::fused {

/// The operator of a rank by the threads of its scope: each is an actor that does what a processor
/// was told, and who is idle looks for what has come. An actor stands for whatever others do not:
/// one thread alone gets through, and none is made for a layer. When all have waited for other
/// ranks for kStay, they let their threads go together until something comes, so that another
/// request that shares these threads gets on.
class Actors {
 public:
  static constexpr std::chrono::milliseconds kStay{20};

  /// `one` outlives this. It waits for as long as its heap's ranks do.
  explicit Actors(MoeOperator& one);

  /// One layer, on all ranks alike. Actors share the caller's scope, but for its threads, and its
  /// request to stop. Throws Error(cancelled) after one, what has ended the ranks' world, and
  /// Error(rank) that names what did not come, when no rank gets on for the world's deadline. An
  /// error of one actor ends the world at once, whatever the others are at.
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
  std::mutex polling_;                            // who has it has the coordinator
  std::unique_ptr<std::atomic<bool>[]> at_work_;  // by processor
  std::atomic<bool> done_{true}, failed_{false};
  std::atomic<bool> resting_{false};  // all actors leave
  std::atomic<int> busy_{0};          // actors at a task
  std::atomic<uint64_t> found_{0};    // how often an actor had something to do
};

}  // namespace tessera::fused
