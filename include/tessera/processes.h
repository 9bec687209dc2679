#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tessera/error.h"

namespace tessera {

/// The ranks of a run that are processes, started by mpirun: run_processes makes it. Models that
/// are opened with it take one request at a time, all of them together.
class Processes {
 public:
  /// How the ranks are joined; known to the library alone.
  struct State;
  explicit Processes(std::unique_ptr<State> state);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// This process, from 0 on.
  int rank() const;
  /// All of them.
  int ranks() const;
  /// Those that share the cores of this process's machine.
  int on_this_machine() const;
  /// What rank 0 says, on every rank, between requests: all must call it, and none while one works.
  /// A rank waits no longer than ProcessOptions::comm_timeout: who has nothing to say says "" in
  /// time. Throws Error(rank) when it does not come.
  std::string share(const std::string& text) const;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
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
/// throws an EchoError on every rank, as one of them has reported the root cause: with the code of
/// that, ErrorCode::rank where a rank was lost. Once in a process. Throws Error(plan) when the
/// library was built without MPI.
void run_processes(const ProcessOptions& options,
                   const std::function<void(const Processes&)>& body);

}  // namespace tessera
