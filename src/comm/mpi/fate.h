#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/error.h"

namespace tessera::comm::mpi {

/// How the ranks of a world end. Thread-safe.
class Fate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Failure {
    Error error;        ///< what ends the waits here
    ErrorCode code;     ///< what every process ends with
    int origin = 0;     ///< the rank where it began
    bool lost = false;  ///< the process of `origin` is gone, or mpirun ended it
    Time since;
  };
  Fate(int rank, int ranks)
      : rank_(rank), done_(size_t(ranks)), signalled_(size_t(ranks)), lowest_(ranks) {}

  /// Notes that the world has failed, and with what code it began. The first failure stays; true if
  /// this one is it.
  bool fail(const Error& error, ErrorCode code, int origin, bool lost, Time now);
  /// The failure, if there is one.
  std::optional<Failure> failure() const;
  /// A rank has ended its work, well or not.
  void done(int rank);
  /// Whether all ranks have.
  bool all_done() const;
  /// A rank got SIGTERM.
  void signalled(int rank);
  /// Those that did.
  std::vector<int> signalled() const;
  /// A rank has told the user of the failure.
  void told();
  bool was_told() const;
  /// Whether this rank failed by itself and none below it did.
  bool first_to_fail() const;
  /// What this rank ends with, the world having failed: `own` is what its body threw, or null.
  std::exception_ptr verdict(const std::exception_ptr& own) const;

 private:
  int rank_;
  mutable std::mutex mutex_;
  std::vector<bool> done_, signalled_;
  bool told_ = false;
  int lowest_;  // rank that failed by itself
  std::optional<Failure> failure_;
};

}  // namespace tessera::comm::mpi
