#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "comm/communicator.h"
#include "comm/patience.h"
#include "fused/dispatcher.h"

namespace tessera::fused {

/// A thread's wait for words of others: yields, then sleeps, so others get its core. The clock runs
/// while no rank of the world makes progress.
class Standby {
 public:
  /// `ranks` must outlive this object. `awaited`: the awaited rank, or -1; asked once a
  /// wait lasts, so messages of this rank are polled more often than on computing
  /// ranks.
  explicit Standby(
      comm::Communicator& ranks, std::function<int()> awaited = [] { return -1; })
      : ranks_(ranks), awaited_(std::move(awaited)) {}
  ~Standby() { over(); }
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;
  /// The wait is over.
  void over();
  /// A turn; false: past the deadline. Throws Error(cancelled) after a stop request, and the error
  /// behind the end of the world.
  bool wait();
  double seconds() const { return patience_ ? patience_->seconds() : 0; }

 private:
  comm::Communicator& ranks_;
  const std::function<int()> awaited_;
  std::optional<comm::Patience> patience_;
  int turns_ = 0;
  bool others_know_ = false;  // the others know the awaited rank
};

/// Memory of equal size on every rank of a group, writable by the others without the owner's help.
/// Transfers may continue after their call and overtake each other; the sender's bytes must not
/// change until the receiver has answered.
class SymmetricHeap {
 public:
  /// `memory`: of this rank, at a multiple of 64. `ranks`: the group; null: no waits.
  SymmetricHeap(comm::Communicator* ranks, int rank, std::byte* memory)
      : ranks_(ranks), rank_(rank), memory_(memory) {}
  virtual ~SymmetricHeap() = default;
  /// A part of another heap from `begin` on, a multiple of 64.
  SymmetricHeap(const SymmetricHeap& whole, int64_t begin)
      : ranks_(whole.ranks_),
        rank_(whole.rank_),
        memory_(whole.memory_ ? whole.memory_ + begin : nullptr) {}
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  int rank() const { return rank_; }
  std::byte* memory() const { return memory_; }
  comm::Communicator& ranks() const { return *ranks_; }
  /// The number of a rank in the world.
  int in_world(int rank) const { return ranks_ ? ranks_->in_world(rank) : rank; }

  // Thread-safe.
  /// The transfer's bytes into the memory of transfer.to, without its word.
  virtual void put(const Transfer& transfer) = 0;
  /// The transfer's word, after all earlier puts of this thread into the same memory.
  virtual void signal(const Transfer& transfer) = 0;
  /// Bytes, then their word: a reader of the word sees the bytes.
  virtual void put_signal(const Transfer& transfer) = 0;

  /// Returns at this value of an own word. Throws Error(cancelled) after a stop, the error behind
  /// the end of the world, and Error(rank) without progress of any rank within the deadline.
  void wait(int64_t word, uint64_t value) const;

 private:
  comm::Communicator* ranks_;
  int rank_;
  std::byte* memory_;
};

}  // namespace tessera::fused
