#pragma once

#include <chrono>
#include <functional>

#include "comm/communicator.h"

namespace tessera::comm::mpi {

struct Options {
  /// How long a wait may last while nobody of the world gets on, and a peer be silent.
  std::chrono::milliseconds deadline{60000};
  /// A failed world ends after half of it: by then all ranks know why. mpirun, too, sees that a
  /// rank was lost, and kills the others half a second later (Open MPI 5) or after a second and
  /// more.
  std::chrono::milliseconds grace{600};
  /// Tells the user an error. Called on one rank only, before any process ends: mpirun kills the
  /// others when it has seen some end.
  std::function<void(const Error&)> report;
  /// Must end the process with the code of the error, at once. Called when the world has failed and
  /// this rank is still at work in its last moment: it computes, or MPI does not return.
  std::function<void(const Error&)> give_up;
  /// Called, if there, when all ranks have ended well and only MPI's end is left: nothing of this
  /// run takes longer from here on than `limit`, unless the process is stopped.
  std::function<void(std::chrono::milliseconds limit)> ending{};
};

/// Whether mpirun started this process. Throws Error(usage) for an environment that is not as
/// mpirun makes it.
bool launched();

/// Runs `body` on this process as a rank of MPI's world; returns when all ranks have ended well.
/// When a rank throws, its error is thrown there, and one with its code and cause elsewhere; when a
/// process is lost or mpirun sends SIGTERM, Error(rank) on all that are left. As one rank
/// has reported it by then, it is an EchoError, on all ranks at the same moment: end the process
/// soon. Once in a process: MPI cannot be started twice. Throws Error(plan) when the library was
/// built without MPI.
void run(const Options& options, const std::function<void(Communicator& world)>& body);

}  // namespace tessera::comm::mpi
