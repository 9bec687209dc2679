#pragma once

#include <chrono>
#include <functional>

#include "comm/communicator.h"

namespace tessera::comm::threads {

/// Runs `body` on `ranks` ranks, each a thread of this process; rank 0 is the calling thread. When
/// a rank throws, the waits of all others end; the first error is thrown here after all have ended.
void run(int ranks, std::chrono::milliseconds deadline,
         const std::function<void(Communicator& world)>& body);

}  // namespace tessera::comm::threads
