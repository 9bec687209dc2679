#pragma once

#include <cstdint>
#include <functional>

#include "comm/inbox.h"

namespace tessera::comm {

/// Moves messages between the ranks of a world. A transport consists of this class, a launcher with
/// an instance for each rank, and a line in the conformance suite.
class Transport {
 public:
  /// Bytes sent to a rank before any expectation there, at most.
  static constexpr uint64_t kMostAhead = uint64_t{256} << 20;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Hands a message over and returns at once. Messages may overtake each other; only those as
  /// small as an announcement (comm/nccl) arrive in order between two ranks.
  virtual void send(int to, uint64_t channel, Message message) = 0;
  /// Waits while more than kMostAhead bytes are under way to a rank or unexpected there. `expired`
  /// as in Inbox::take.
  virtual void await_room(int to, const std::function<void()>& expired) = 0;
  /// Received messages.
  virtual Inbox& inbox() = 0;
  /// Counts progress of this rank, as a sign of life for its peers.
  virtual void advance() = 0;
  /// The last known count of a rank.
  virtual uint64_t progress(int rank) const = 0;
  /// Tells the others about this rank's wait for a rank, or -1.
  virtual void wait_for(int rank) = 0;
  /// The rank of a rank's wait, if known; or -1.
  virtual int waits_for(int rank) const = 0;
  /// Ends the waits of all ranks with `error`. All ranks see the first failure.
  virtual void fail_all(const Error& error) = 0;
};

}  // namespace tessera::comm
