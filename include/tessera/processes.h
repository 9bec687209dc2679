#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "tessera/error.h"

namespace tessera {

namespace comm {
class Communicator;
}

/// The ranks of a run that are processes, started by mpirun.
struct Processes {
  int rank = 0, ranks = 1;
  int on_this_machine = 1;              ///< ranks that share its cores
  comm::Communicator* world = nullptr;  ///< known to the library alone
  int index_here = 0;                   ///< of this rank among those of its machine
  /// The same ranks once each computes on a GPU of its own; known to the library alone.
  mutable std::shared_ptr<comm::Communicator> gpus{};
};

/// How a rank that is a process ends when the run fails.
struct ProcessOptions {
  /// A wait lasts no longer while no rank gets on: computes, loads, or receives.
  std::chrono::milliseconds comm_timeout{60000};
  /// Tells the user an error; called on one rank of all.
  std::function<void(const Error&)> report;
  /// Ends the process with the code of the error, at once; called when this rank cannot stop its
  /// work in time.
  std::function<void(const Error&)> give_up;
  /// Called, if there, when all ranks have ended their work well and only MPI's end is left. What
  /// is left takes no longer than `limit`, or this rank was stopped: nobody else may see that.
  std::function<void(std::chrono::milliseconds limit)> ending{};
};

/// Whether mpirun started this process. Throws Error(usage) for an environment that mpirun does not
/// make.
bool started_by_mpirun();

/// Runs `body` as one rank of MPI's world. It returns when all ranks have ended well; else it
/// throws an EchoError on every rank, as one of them has reported the root cause: with its own code
/// where the rank itself failed, with ErrorCode::rank where another did, or was lost. Once in a
/// process. Throws Error(plan) when the library was built without MPI.
void run_processes(const ProcessOptions& options, const std::function<void(Processes&)>& body);

}  // namespace tessera
