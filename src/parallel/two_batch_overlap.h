#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

namespace tessera::parallel {

/// Two pieces of a rank's work in turn: one computes while messages of the other travel. They never
/// run at once, so they may share the state of a thread.
class TwoBatchOverlap {
 public:
  /// Runs piece(0) first, and piece(1); returns when both have ended. If a piece throws, the other
  /// ends at its next wait, and the first error is thrown here.
  void run(const std::function<void(int piece)>& piece);
  /// Runs the other piece until its hand-over or end. Returns at once without another piece.
  void hand_over();

 private:
  struct Interrupted {};
  void work(int number, const std::function<void(int)>& piece);

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = -1;  // nothing runs
  bool ended_[2] = {};
  std::exception_ptr failure_;
};

}  // namespace tessera::parallel
