#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "tensor/scope.h"

namespace tessera::comm::simulated {

/// A rehearsal: `body` on as many ranks as there are scopes, each a thread of this process with its
/// scope bound. Tensors on meta are sent as others are: ledgers count their messages and bytes, and
/// trackers the memory that these are in real ranks, threads or processes; nothing moves. Errors as
/// in threads::run.
void run(const std::vector<tensor::Scope>& scopes, std::chrono::milliseconds deadline,
         const std::function<void(Communicator& world)>& body);

}  // namespace tessera::comm::simulated
