#pragma once

#include <chrono>
#include <memory>

#include "comm/transport.h"

namespace tessera::comm {

/// A transport on top of an ordered transport: delays each message by a random time up to
/// `longest`, so messages overtake each other.
std::shared_ptr<Transport> shuffled(std::shared_ptr<Transport> below,
                                    std::chrono::microseconds longest);

}  // namespace tessera::comm
