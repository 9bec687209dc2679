#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "comm/message.h"

namespace tessera::comm {

/// Sends and waits of a rank, by operation and site. Used by the rank's own thread only.
class Ledger {
 public:
  struct Entry {
    int64_t messages = 0, bytes = 0;  ///< sent to other ranks
    double wait_seconds = 0;          ///< blocked until an arrival
    double flight_seconds = 0;        ///< from the start of a receive to the arrival of its message
    TrafficKind kind = TrafficKind::plan;
  };
  using Entries = std::map<std::pair<std::string, int>, Entry>;
  void sent(const Tag& tag, int64_t bytes, int64_t messages = 1);
  void received(const Tag& tag, double wait_seconds, double flight_seconds);
  const Entries& entries() const { return entries_; }
  /// Differences to earlier entries `before`.
  Entries since(const Entries& before) const;
  Entry total() const;

 private:
  Entries entries_;
};

}  // namespace tessera::comm
