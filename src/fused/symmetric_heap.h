#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "comm/communicator.h"
#include "comm/patience.h"
#include "fused/dispatcher.h"

namespace tessera::fused {

/// A wait of one thread for words that others write: it yields, then sleeps, so that they get its
/// core. The clock runs while no rank of the world gets on.
class Standby {
 public:
  /// `ranks` outlives this.
  /// `whom`: for which of them the rank waits, or -1; asked when the wait begins to last, so that
  /// what they send is looked for more often than where a rank computes.
  explicit Standby(
      comm::Communicator& ranks, std::function<int()> whom = [] { return -1; })
      : ranks_(ranks), whom_(std::move(whom)) {}
  ~Standby() { over(); }
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;
  /// What was waited for is there.
  void over();
  /// One turn; false: past the deadline. Throws Error(cancelled) after a request to stop, and what
  /// has ended the world.
  bool wait();
  double seconds() const { return patience_ ? patience_->seconds() : 0; }

 private:
  comm::Communicator& ranks_;
  const std::function<int()> whom_;
  std::optional<comm::Patience> patience_;
  int turns_ = 0;
  bool told_ = false;  // the others: for whom it waits
};

/// Memory of equal size on every rank of a group, into which the others write without its help.
/// What is sent may travel after its call has returned, and pass what was sent before; the sender's
/// bytes stay as they are until their receiver has answered.
class SymmetricHeap {
 public:
  /// `memory`: of this rank, from a multiple of 64 on. `ranks`: the group; null: nobody waits.
  SymmetricHeap(comm::Communicator* ranks, int rank, std::byte* memory)
      : ranks_(ranks), rank_(rank), memory_(memory) {}
  virtual ~SymmetricHeap() = default;
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  int rank() const { return rank_; }
  std::byte* memory() const { return memory_; }
  comm::Communicator& ranks() const { return *ranks_; }
  /// The number of one of its ranks in the world.
  int in_world(int rank) const { return ranks_ ? ranks_->in_world(rank) : rank; }

  // Thread-safe.
  /// The transfer's bytes into the memory of transfer.to, without its word.
  virtual void put(const Transfer& transfer) = 0;
  /// The transfer's word, behind all that this thread has put into that memory before.
  virtual void signal(const Transfer& transfer) = 0;
  /// Bytes, then their word: who sees the word sees the bytes.
  virtual void put_signal(const Transfer& transfer) = 0;

  /// Returns when a word of mine has this value. Throws Error(cancelled) after a request to stop,
  /// what has ended the world, and Error(rank) when no rank gets on for the world's deadline.
  void wait(int64_t word, uint64_t value) const;

 private:
  comm::Communicator* ranks_;
  int rank_;
  std::byte* memory_;
};

}  // namespace tessera::fused
