#pragma once

#include <chrono>
#include <string>

#include "comm/transport.h"

namespace tessera::comm {

/// The clock of a wait: runs while no rank of the world makes progress.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  Patience(const Transport& transport, std::chrono::milliseconds deadline)
      : transport_(transport),
        deadline_(deadline),
        last_progress_(progress()),
        since_(Clock::now()) {}
  /// True after a deadline without progress.
  bool over();
  double seconds() const { return std::chrono::duration<double>(deadline_).count(); }

 private:
  uint64_t progress() const;
  const Transport& transport_;
  const std::chrono::milliseconds deadline_;
  uint64_t last_progress_;
  Clock::time_point since_;
};

/// During the life of this object, the rank waits for another.
class Waiting {
 public:
  Waiting(Transport& transport, int peer) : transport_(transport) { transport_.wait_for(peer); }
  ~Waiting() { transport_.wait_for(-1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Transport& transport_;
};

/// "rank 1, which waits for rank 2, which made no progress": the end of a chain of waits.
std::string standstill(const Transport& transport, int peer);

}  // namespace tessera::comm
