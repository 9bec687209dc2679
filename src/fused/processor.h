#pragma once

#include "fused/queue.h"

namespace tessera::fused {

/// Who does tasks, as the scheduler sees him. `Words` reads and writes words that others share.
class Processor {
 public:
  explicit Processor(Doorbell* bell = nullptr) : bell_(bell) {}

  /// Whether there is something to do; only who has the processor may trust it.
  template <class Words>
  bool called(Words& words) const {
    return words.load(&bell_->word) != 0;
  }
  /// Whether there is something to do; then it is `task`, and done() follows when it is done.
  template <class Words>
  bool take(Task& task, Words& words) const {
    if (!called(words)) return false;
    task = bell_->task;
    return true;
  }
  template <class Words>
  void done(Words& words) const {
    words.store(&bell_->word, 0);
  }

 private:
  Doorbell* bell_;
};

}  // namespace tessera::fused
