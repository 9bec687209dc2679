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
