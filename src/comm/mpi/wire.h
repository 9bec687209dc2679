#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

#include "comm/message.h"

namespace tessera::comm::mpi {

/// What stands before the bytes of a message.
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

/// What a message says of itself. Throws Error(rank) when its operation's name is too long.
Header describe(uint64_t channel, const Message& message);

/// The names of operations, each kept once: a Tag points to them.
class Names {
 public:
  const char* keep(const std::string& name) { return names_.insert(name).first->c_str(); }

 private:
  std::set<std::string> names_;
};

/// A message without its bytes yet. Throws Error(rank) for a header that no rank of this program
/// would send.
Message announced(const Header& header, Names& names);

/// What ranks tell each other beside messages.
struct Notice {
  enum Kind : int32_t {
    alive = 1,
    done = 2,       ///< its body has ended
    failed = 3,     ///< the world has
    left = 4,       ///< it will not be heard any more
    told = 5,       ///< it has told the user why the world failed
    signalled = 6,  ///< it got SIGTERM
  };
  Kind kind = alive;
  int32_t code = 0;        ///< of failed: the ErrorCode
  uint64_t progress = 0;   ///< what the sender has done so far
  uint64_t accepted = 0;   ///< bytes from the receiver of this that were expected there, in all
  int32_t waits_for = -1;  ///< a rank, or -1
  int32_t origin = -1;     ///< of failed: the rank where it began; -1: outside
  int32_t lost = 0;        ///< of failed: 1 if the process of `origin` is gone, or mpirun ended all
  int64_t since = 0;       ///< of failed: when, on the steady clock of the sender's machine
  char text[1000] = {};    ///< of failed: what the error says, ends with a zero
};
static_assert(std::is_trivially_copyable_v<Notice>);

/// Bytes of a notice that travel.
size_t size_of(const Notice& notice);
/// A notice from bytes of another rank. Throws Error(rank) for what no rank would send.
Notice read_notice(const void* bytes, size_t size, int ranks);

}  // namespace tessera::comm::mpi
