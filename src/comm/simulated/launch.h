#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "tensor/scope.h"

namespace tessera::comm::simulated {

/// A dry run: `body` on a rank for each scope, each a thread of this process with its scope
/// bound. Tensors on meta are sent as usual: ledgers count their messages and bytes, and
/// trackers their memory on real ranks, threads or processes; nothing moves. A watcher of
/// the calling thread gives each rank its own. Errors as in threads::run.
void run(const std::vector<tensor::Scope>& scopes, std::chrono::milliseconds deadline,
         const std::function<void(Communicator& world)>& body);

}  // namespace tessera::comm::simulated
