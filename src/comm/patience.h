#pragma once

#include <chrono>
#include <string>

#include "comm/transport.h"

namespace tessera::comm {

/// The clock of a wait: it runs while no rank of the world gets on.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  Patience(const Transport& transport, std::chrono::milliseconds deadline)
      : transport_(transport), deadline_(deadline), seen_(progress()), since_(Clock::now()) {}
  /// Whether nobody has got on for the deadline.
  bool over();
  double seconds() const { return std::chrono::duration<double>(deadline_).count(); }

 private:
  uint64_t progress() const;
  const Transport& transport_;
  const std::chrono::milliseconds deadline_;
  uint64_t seen_;
  Clock::time_point since_;
};

/// While one of these lives, its rank waits for another.
class Waiting {
 public:
  Waiting(Transport& transport, int peer) : transport_(transport) { transport_.wait_for(peer); }
  ~Waiting() { transport_.wait_for(-1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Transport& transport_;
};

/// "rank 1, which waits for rank 2, which made no progress": where a chain of waits ends.
std::string standstill(const Transport& transport, int peer);

}  // namespace tessera::comm
