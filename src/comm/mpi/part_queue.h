#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tessera::comm::mpi {

/// Large messages to a receiver, sent in parts, few bytes at once: later messages and heartbeats
/// share the link with few parts, not with the whole queue. The message with the fewest bytes left
/// goes first, the older of two.
class PartQueue {
 public:
  static constexpr int64_t kPart = int64_t{1} << 20;  ///< bytes; fits MPI's int
  static constexpr int64_t kAtOnce = 2 * kPart;       ///< bytes under way before the next part

  struct Part {
    uint64_t message = 0;
    int64_t begin = 0, size = 0;
    bool last = false;  ///< end of the message
  };
  /// Messages have rising numbers.
  void add(uint64_t message, int64_t bytes) { remaining_[message] = {0, bytes}; }
  /// The next part to post, if any.
  std::optional<Part> next();
  /// A part of `bytes` has gone.
  void ended(int64_t bytes) { under_way_ -= bytes; }

 private:
  struct Remaining {
    int64_t begin = 0, end = 0;
  };
  std::map<uint64_t, Remaining> remaining_;
  int64_t under_way_ = 0;
};

}  // namespace tessera::comm::mpi
