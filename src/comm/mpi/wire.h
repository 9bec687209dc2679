#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

#include "comm/message.h"

namespace tessera::comm::mpi {

/// The header before the bytes of a message.
struct Header {
  uint32_t magic = 0;
  int32_t site = -1;
  uint64_t channel = 0;
  uint64_t order = 0;  ///< Message::order
  int64_t bytes = 0;
  int64_t sizes[tensor::Shape::kMaxRank] = {};
  uint8_t axes = 0;
  uint8_t dtype = 0;
  uint8_t last = 0;         ///< Message::last
  char operation[37] = {};  ///< ends with a zero
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 120);

/// The header of a message. Throws Error(rank) for too long a name of an operation.
Header describe(uint64_t channel, const Message& message);

/// The names of operations, each kept once: a Tag points to them.
class Names {
 public:
  const char* keep(const std::string& name) { return names_.insert(name).first->c_str(); }

 private:
  std::set<std::string> names_;
};

/// A message without its bytes yet. Throws Error(rank) for a header foreign to this
/// program.
Message announced(const Header& header, Names& names);

/// Messages among ranks besides data.
struct Notice {
  enum Kind : int32_t {
    alive = 1,
    done = 2,       ///< its body has ended
    failed = 3,     ///< the world has failed
    left = 4,       ///< no more messages will come
    reported = 5,   ///< has reported the failure to the user
    signalled = 6,  ///< received SIGTERM
  };
  Kind kind = alive;
  int32_t code = 0;        ///< for failed: the ErrorCode
  uint64_t progress = 0;   ///< the sender's progress count
  uint64_t accepted = 0;   ///< bytes from the receiver of this that were expected there, in all
  int32_t waits_for = -1;  ///< a rank, or -1
  int32_t origin = -1;     ///< for failed: the rank of the first failure; -1: outside
  int32_t lost = 0;        ///< failed: 1 if the process of `origin` is gone, or mpirun ended all
  int64_t since = 0;       ///< for failed: the time, on the steady clock of the sender's machine
  char text[1000] = {};    ///< for failed: the error's text, zero at the end
};
static_assert(std::is_trivially_copyable_v<Notice>);

/// Bytes to send for a notice.
size_t size_of(const Notice& notice);
/// A notice from another rank's bytes. Throws Error(rank) for bytes foreign to this program.
Notice read_notice(const void* bytes, size_t size, int ranks);

}  // namespace tessera::comm::mpi
