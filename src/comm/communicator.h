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

/// A started receive. Owns everything needed; dropping it drops the message. From the start the
/// message counts as buffers of the caller's scope.
class Pending {
 public:
  Pending() = default;
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();
  /// True if wait() would return at once.
  bool done();
  /// The message. Throws Error(rank) when the sender failed or sent something else, or when no rank
  /// of the world made progress within the deadline. A device tensor is returned as soon as its
  /// transfer is ordered before later work of this thread's stream; the host does not wait for the
  /// elements. Once only.
  tensor::Tensor wait();
  /// Tag::transfers of the message, after wait().
  int64_t transfers() const { return tag_.transfers; }

 private:
  friend class Communicator;
  struct Source;
  void drop() noexcept;
  std::shared_ptr<Source> source_;
  uint64_t order_ = 0;
  Tag tag_;
  std::chrono::steady_clock::time_point begin_;
  std::shared_ptr<tensor::MemoryTracker> memory_;  // null: unshared, or not counted
  uint64_t expected_ = 0;                          // bytes expected
};

/// Ranks with messages among each other: the world, or a group. Messages between two ranks of a
/// communicator arrive in the order of their sends, and match receives in the order of their
/// starts; communicators do not mix. Used by one thread of a rank.
class Communicator {
 public:
  /// All ranks of a transport. `deadline`: the longest wait without progress of any
  /// rank.
  static std::unique_ptr<Communicator> world(std::shared_ptr<Transport> transport,
                                             std::chrono::milliseconds deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  /// The number in the world of a rank of this communicator.
  int in_world(int rank) const { return members_.at(static_cast<size_t>(rank)); }

  /// Hands `data` over; the sender must not write to the tensor any more and does not count its
  /// memory. Returns at once, except for a receiver far behind (Transport::kMostAhead): start a
  /// receive before the answering send.
  void send(int to, tensor::Tensor data, const Tag& tag);
  /// As send(), for bytes outside the ledger, or counted otherwise.
  void post(int to, tensor::Tensor data, const Tag& tag);
  /// Passes all later messages of other ranks here to a listener, with the sender's number in the
  /// world. Nothing may receive here before or afterwards.
  void listen(Listener listener);
  /// Starts a receive.
  Pending receive(int from, const Tag& tag);

  /// A communicator of some ranks of this one, in this order. All members call with equal lists, in
  /// the same order as their other group() calls on this communicator.
  std::unique_ptr<Communicator> group(const std::vector<int>& members);
  /// The same ranks for a request, in a channel of their own: a failure there, and in its groups,
  /// ends the waits of this request only. All ranks call, as for group().
  std::unique_ptr<Communicator> request();
  /// Makes a transport over another, with the deadline of its waits.
  using TransportFactory = std::function<std::shared_ptr<Transport>(
      std::shared_ptr<Transport> below, std::chrono::milliseconds deadline)>;
  /// The ranks of this world, in a channel of their own, with a transport over this transport. All
  /// ranks call, as for group().
  std::unique_ptr<Communicator> over(const TransportFactory& factory);

  /// Signals progress of this rank; called where much is computed between messages.
  void advance() { transport_->advance(); }
  /// Tells the others about this rank's wait for a rank, or -1. Any thread.
  void wait_for(int rank) { transport_->wait_for(rank < 0 ? -1 : in_world(rank)); }
  /// For a wait without a message: throws the error behind the end of the world's waits, or of the
  /// request's.
  void check() const;
  /// The clock of such a wait.
  Patience patience() const;
  /// Ends the waits of all ranks with `error`: in a request those of the request, except for a lost
  /// rank, Error(rank); otherwise those of the world. Any thread.
  void fail_all(const Error& error);
  /// This rank's own failure of the request, if not another rank's.
  std::optional<Error> failed() const;
  /// Messages and waits of this rank, here and in all groups.
  Ledger& ledger() const { return *ledger_; }

 private:
  Communicator() = default;
  struct Request;
  void check_rank(int rank, const Tag& tag) const;
  void hand_over(int to, tensor::Tensor data, const Tag& tag);
  void close() noexcept;

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<Request> request_;  // null: no request
  std::chrono::milliseconds deadline_{};
  uint64_t channel_ = 0;
  uint64_t groups_ = 0;       // made from this communicator
  std::vector<int> members_;  // world ranks
  int rank_ = 0;
  std::vector<std::shared_ptr<Pending::Source>> sources_;  // by member
  std::vector<uint64_t> sent_;                             // messages, by member
};

}  // namespace tessera::comm
