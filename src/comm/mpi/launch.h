#pragma once

#include <chrono>
#include <functional>

#include "comm/communicator.h"

namespace tessera::comm::mpi {

struct Options {
  /// The longest wait without progress of any rank, and the longest silence of a peer.
  std::chrono::milliseconds deadline{60000};
  /// A failed world ends after half of this time: all ranks then know the reason. mpirun also
  /// notices a lost rank, and kills the others half a second later (Open MPI 5) or after a second
  /// and more.
  std::chrono::milliseconds grace{600};
  /// Reports an error to the user. Called on one rank only, before any process ends: mpirun kills
  /// the others after the first end.
  std::function<void(const Error&)> report;
  /// Must end the process with the code of the error, at once. Called if the world has failed and
  /// this rank is still busy at its last moment: with computation, or inside MPI.
  std::function<void(const Error&)> give_up;
  /// Called, if present, when all ranks have ended well and only MPI's shutdown is left, which
  /// takes at most `limit` unless the process is stopped.
  std::function<void(std::chrono::milliseconds limit)> ending{};
};

/// True if mpirun started this process. Throws Error(usage) for an environment unlike
/// mpirun's.
bool launched();

/// Runs `body` on this process as a rank of MPI's world; returns when all ranks have ended well.
/// When a rank throws, its error is thrown there, and an error with its code and cause elsewhere;
/// when a process is lost or mpirun sends SIGTERM, Error(rank) on all other ranks. A rank has
/// reported the error by then, so an EchoError is thrown, on all ranks at the same moment: end the
/// process soon. Once in a process: MPI cannot start twice. Throws Error(plan) in a build without
/// MPI.
void run(const Options& options, const std::function<void(Communicator& world)>& body);

}  // namespace tessera::comm::mpi
