#pragma once

#include <chrono>
#include <memory>

#include "comm/transport.h"

namespace tessera::comm {

/// A transport that keeps each message for a random time up to `longest` and lets messages overtake
/// each other, over one that does neither.
std::shared_ptr<Transport> shuffled(std::shared_ptr<Transport> below,
                                    std::chrono::microseconds longest);

}  // namespace tessera::comm
