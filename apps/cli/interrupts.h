#pragma once

#include <stop_token>

namespace tessera::cli {

/// Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first asks the program to end within a step,
/// the second ends the program at once. Only one instance may exist.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Requests the end of the program.
  std::stop_token token() const;
};

/// Makes SIGTERM a request to end under mpirun too, instead of an immediate end, for ranks that end
/// together on the order of rank 0. A lost rank still ends all ranks at once.
void end_ranks_gracefully();

/// While an instance exists, the first Ctrl-C interrupts the instance, and the next ends the
/// program.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  /// Requests the end of this operation; also stopped with the program.
  std::stop_token token() const { return token_; }

 private:
  std::stop_token token_;
};

}  // namespace tessera::cli
