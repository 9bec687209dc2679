#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/ending.h"
#include "comm/ledger.h"
#include "comm/transport.h"

namespace tessera::comm {

class Communicator;
class Patience;

/// A receive that was started. It co-owns what it needs; dropping it drops the message. From its
/// start the message counts as buffers of the caller's scope.
class Pending {
 public:
  Pending() = default;
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();
  /// Whether wait() would return at once.
  bool done();
  /// The message. Throws Error(rank) when the sender failed or sent something else, or when no rank
  /// of the world got on for longer than the deadline. A tensor of a device is given as soon as its
  /// transfer is in order before later work of this thread's stream; the host does not wait for the
  /// elements. Once only.
  tensor::Tensor wait();

 private:
  friend class Communicator;
  struct Source;
  void drop() noexcept;
  std::shared_ptr<Source> source_;
  uint64_t order_ = 0;
  Tag tag_;
  std::chrono::steady_clock::time_point begin_;
  std::shared_ptr<tensor::MemoryTracker> memory_;  // null: of nobody else, or not counted
  uint64_t expected_ = 0;                          // there
};

/// Ranks that talk to each other: the world, or a group of it. Messages between two ranks of a
/// communicator arrive in the order in which they were sent, and are matched with receives in the
/// order in which those were started; communicators do not mix. Used by one thread of a rank.
class Communicator {
 public:
  /// All ranks of a transport. `deadline`: how long a wait may last while nobody of the world gets
  /// on.
  static std::unique_ptr<Communicator> world(std::shared_ptr<Transport> transport,
                                             std::chrono::milliseconds deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  /// The number of a rank of this communicator in the world.
  int in_world(int rank) const { return members_.at(static_cast<size_t>(rank)); }

  /// Hands `data` over; it must not be written any more, and is no memory of this rank. Returns at
  /// once, but for a receiver that is far behind (Transport::kMostAhead): start a receive before
  /// the send that answers it.
  void send(int to, tensor::Tensor data, const Tag& tag);
  /// As send(), of bytes that the ledger does not count, or another way.
  void post(int to, tensor::Tensor data, const Tag& tag);
  /// From now on nobody receives: what the others send here goes to a listener, to which a sender
  /// is its number in the world. Nobody has started a receive here.
  void listen(Listener listener);
  /// Starts a receive.
  Pending receive(int from, const Tag& tag);

  /// A communicator of some ranks of this one, in this order. All members call it, with equal
  /// lists, in the same order as their other group() calls on this communicator.
  std::unique_ptr<Communicator> group(const std::vector<int>& members);
  /// The same ranks for one request, in a channel of their own: a failure there, and in groups of
  /// it, ends that request's waits and no others. All of them call it, as group().
  std::unique_ptr<Communicator> request();
  /// What stands over a transport, given the deadline of its waits.
  using Stand = std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport> below,
                                                         std::chrono::milliseconds deadline)>;
  /// The ranks of this world, in a channel of their own, over another transport that stands over
  /// this one's. All of them call it, as group().
  std::unique_ptr<Communicator> over(const Stand& stand);

  /// Says that this rank lives; called where much is computed between communications.
  void advance() { transport_->advance(); }
  /// Tells the others that this rank waits for one of them, or for none: -1. Any thread.
  void wait_for(int rank) { transport_->wait_for(rank < 0 ? -1 : in_world(rank)); }
  /// For a wait that is not for a message: throws what has ended the waits of the world's ranks, or
  /// of the request's.
  void check() const;
  /// And its clock.
  Patience patience() const;
  /// Ends the waits of all ranks with `error`: of a request those of the request, but for a lost
  /// rank, Error(rank), and else of the world. Any thread.
  void fail_all(const Error& error);
  /// What this rank has ended its request with, if it was not another one's word.
  std::optional<Error> failed() const;
  /// What this rank sent and waited for, here and in all groups.
  Ledger& ledger() const { return *ledger_; }

 private:
  Communicator() = default;
  struct Request;
  void check_rank(int rank, const Tag& tag) const;
  void hand_over(int to, tensor::Tensor data, const Tag& tag);
  void close() noexcept;

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<Request> request_;  // null: of none
  std::chrono::milliseconds deadline_{};
  uint64_t channel_ = 0;
  uint64_t groups_ = 0;       // made from this one
  std::vector<int> members_;  // world ranks
  int rank_ = 0;
  std::vector<std::shared_ptr<Pending::Source>> sources_;  // by member
  std::vector<uint64_t> sent_;                             // messages, by member
};

}  // namespace tessera::comm
