#pragma once

#include "comm/inbox.h"

namespace tessera::comm {

/// How messages move between the ranks of a world. A transport is this class, a launcher that gives
/// one to each rank, and a line in the conformance suite.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Hands a message over and returns at once; it arrives in order for each (channel, receiver).
  virtual void send(int to, uint64_t channel, Message message) = 0;
  /// What arrived here.
  virtual Inbox& inbox() = 0;
  /// Counts what this rank has done, so that its peers see that it lives.
  virtual void advance() = 0;
  /// The last known count of a rank.
  virtual uint64_t progress(int rank) const = 0;
  /// Ends the waits of all ranks with `error`. The first failure is the one that everybody sees.
  virtual void fail_all(const Error& error) = 0;
};

}  // namespace tessera::comm
