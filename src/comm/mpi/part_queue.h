#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tessera::comm::mpi {

/// Large messages to one receiver, which go in parts, few bytes of them at once: a message that is
/// posted later, and a heartbeat, share the link with those few, not with all that is queued. The
/// message of which least is left goes first, the older one of two.
class PartQueue {
 public:
  static constexpr int64_t kPart = int64_t{1} << 20;  ///< bytes; fits MPI's int
  static constexpr int64_t kAtOnce = 2 * kPart;       ///< no part is posted behind so many bytes

  struct Part {
    uint64_t message = 0;
    int64_t begin = 0, size = 0;
    bool last = false;  ///< of its message
  };
  /// Messages have rising numbers.
  void add(uint64_t message, int64_t bytes) { left_[message] = {0, bytes}; }
  /// What is to be posted now, if anything.
  std::optional<Part> next();
  /// A part of so many bytes has gone.
  void ended(int64_t bytes) { under_way_ -= bytes; }

 private:
  struct Left {
    int64_t begin = 0, end = 0;
  };
  std::map<uint64_t, Left> left_;
  int64_t under_way_ = 0;
};

}  // namespace tessera::comm::mpi
