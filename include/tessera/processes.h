#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tessera/error.h"

namespace tessera {

/// Ranks that are processes, started by mpirun; created by run_processes. Models opened with it
/// take one request at a time, all together.
class Processes {
 public:
  /// The connection of the ranks; known to the library alone.
  struct State;
  explicit Processes(std::unique_ptr<State> state);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// The rank of this process, from 0.
  int rank() const;
  /// The number of ranks.
  int ranks() const;
  /// Ranks on this process's machine.
  int on_this_machine() const;
  /// Broadcasts rank 0's text between requests: all ranks must call it, and none during a request.
  /// A rank waits at most ProcessOptions::comm_timeout, so rank 0 sends "" in time. Throws
  /// Error(rank) on a timeout.
  std::string share(const std::string& text) const;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// How a rank that is a process ends when the run fails.
struct ProcessOptions {
  /// Limit of a wait while no rank makes progress: computes, loads, or receives.
  std::chrono::milliseconds comm_timeout{60000};
  /// Tells the user an error; called on one rank of all.
  std::function<void(const Error&)> report;
  /// Ends the process with the code of the error, at once; called if this rank cannot stop its work
  /// in time.
  std::function<void(const Error&)> give_up;
  /// Called, if present, when all ranks have finished their work and only MPI's shutdown is left. A
  /// longer shutdown than `limit` means a stopped rank, which others may not notice.
  std::function<void(std::chrono::milliseconds limit)> ending{};
};

/// True if mpirun started this process. Throws Error(usage) for an environment unlike
/// mpirun's.
bool started_by_mpirun();

/// Runs `body` as a rank of MPI's world. Returns when all ranks have ended well; otherwise
/// throws an EchoError on every rank, after a rank reported the root cause: with its code, or
/// ErrorCode::rank for a lost rank. Once in a process. Throws Error(plan) in a build without
/// MPI.
void run_processes(const ProcessOptions& options,
                   const std::function<void(const Processes&)>& body);

}  // namespace tessera
