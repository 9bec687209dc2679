#pragma once

#include <stop_token>

namespace tessera::cli {

/// Takes over SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first asks the program to end within a step,
/// a second ends it at once. One a program.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Asks the program to end.
  std::stop_token token() const;
};

/// From now on SIGTERM asks the program to end under mpirun, too, where it else ends it at once:
/// for ranks that end together when the first one says so. One that is lost ends them all the same.
void end_ranks_gracefully();

/// While one lives, Ctrl-C asks this to end, and the program only if it comes once more.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  /// Asks this to end; also when the program is to.
  std::stop_token token() const { return token_; }

 private:
  std::stop_token token_;
};

}  // namespace tessera::cli
