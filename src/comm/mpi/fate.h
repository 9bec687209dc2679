#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/error.h"

namespace tessera::comm::mpi {

/// The end of the ranks of a world. Thread-safe.
class Fate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Failure {
    Error error;        ///< the error of waits here
    ErrorCode code;     ///< exit code of every process
    int origin = 0;     ///< the rank of the first failure
    bool lost = false;  ///< the process of `origin` is gone, or mpirun ended it
    Time since;
  };
  Fate(int rank, int ranks)
      : rank_(rank), done_(size_t(ranks)), signalled_(size_t(ranks)), lowest_(ranks) {}

  /// Notes the failure of the world and its first code. The first failure stays; true for the first
  /// one.
  bool fail(const Error& error, ErrorCode code, int origin, bool lost, Time now);
  /// The failure, if any.
  std::optional<Failure> failure() const;
  /// A rank has ended its work, with or without success.
  void done(int rank);
  /// True if all ranks have.
  bool all_done() const;
  /// A rank got SIGTERM.
  void signalled(int rank);
  /// The ranks with SIGTERM.
  std::vector<int> signalled() const;
  /// A rank has reported the failure to the user.
  void set_reported();
  bool reported() const;
  /// True if this rank failed by itself and no lower rank did.
  bool first_to_fail() const;
  /// The final error of this rank in a failed world: `own` is its body's error, or null.
  std::exception_ptr verdict(const std::exception_ptr& own) const;

 private:
  int rank_;
  mutable std::mutex mutex_;
  std::vector<bool> done_, signalled_;
  bool reported_ = false;
  int lowest_;  // lowest rank with an own failure
  std::optional<Failure> failure_;
};

}  // namespace tessera::comm::mpi
