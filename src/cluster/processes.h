#pragma once

#include <atomic>
#include <memory>

#include "comm/communicator.h"
#include "tessera/processes.h"

namespace tessera {

/// The ranks that are processes, as run_processes joined them.
struct Processes::State {
  int rank = 0, ranks = 1;
  int on_this_machine = 1;
  comm::Communicator* world = nullptr;
  int index_here = 0;  ///< of this rank among those of its machine
  /// The same ranks once each computes on a GPU of its own.
  std::shared_ptr<comm::Communicator> gpus{};
  std::atomic<bool> working{false};  ///< on a request of a model that stands on them
};

}  // namespace tessera
