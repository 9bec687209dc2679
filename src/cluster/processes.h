#pragma once

#include <atomic>
#include <memory>

#include "comm/communicator.h"
#include "tessera/processes.h"

namespace tessera {

/// The ranks as processes, joined by run_processes.
struct Processes::State {
  int rank = 0, ranks = 1;
  int on_this_machine = 1;
  comm::Communicator* world = nullptr;
  int index_here = 0;  ///< index among the ranks of the machine
  /// The same ranks, each with a GPU of its own.
  std::shared_ptr<comm::Communicator> gpus{};
  std::atomic<bool> working{false};  ///< busy with a request
};

}  // namespace tessera
