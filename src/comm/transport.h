#pragma once

#include <cstdint>
#include <functional>

#include "comm/inbox.h"

namespace tessera::comm {

/// How messages move between the ranks of a world. A transport is this class, a launcher that gives
/// one to each rank, and a line in the conformance suite.
class Transport {
 public:
  /// Bytes that a rank may send to another before that one expects them.
  static constexpr uint64_t kMostAhead = uint64_t{256} << 20;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Hands a message over and returns at once. Messages may overtake each other; only those that
  /// are as small as an announcement (comm/nccl) arrive in order between two ranks.
  virtual void send(int to, uint64_t channel, Message message) = 0;
  /// Waits while more than kMostAhead bytes are on their way to a rank or wait there for somebody
  /// to expect them. `expired` as in Inbox::take.
  virtual void await_room(int to, const std::function<void()>& expired) = 0;
  /// What arrived here.
  virtual Inbox& inbox() = 0;
  /// Counts what this rank has done, so that its peers see that it lives.
  virtual void advance() = 0;
  /// The last known count of a rank.
  virtual uint64_t progress(int rank) const = 0;
  /// Tells the others that this rank waits for another, or for none: -1.
  virtual void wait_for(int rank) = 0;
  /// For whom a rank waits, as far as is known; or -1.
  virtual int waits_for(int rank) const = 0;
  /// Ends the waits of all ranks with `error`. The first failure is the one that everybody sees.
  virtual void fail_all(const Error& error) = 0;
};

}  // namespace tessera::comm
