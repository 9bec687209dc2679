#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

namespace tessera::parallel {

/// Two pieces of one rank's work that take turns: one computes while messages of the other travel.
/// They are never at work at once, so they may share what belongs to one thread.
class Turns {
 public:
  /// Runs piece(0), which begins, and piece(1); returns when both have ended. When one throws, the
  /// other ends where it waits for its turn, and the first error is thrown here.
  void run(const std::function<void(int piece)>& piece);
  /// Lets the other piece work until it hands over or ends. Returns at once when there is no other.
  void hand_over();

 private:
  struct Interrupted {};
  void work(int mine, const std::function<void(int)>& piece);

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = -1;  // nothing runs
  bool ended_[2] = {};
  std::exception_ptr failure_;
};

}  // namespace tessera::parallel
