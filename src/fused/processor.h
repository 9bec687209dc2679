#pragma once

#include "fused/queue.h"

namespace tessera::fused {

/// Executes tasks, as seen by the scheduler. `Words` reads and writes shared words.
class Processor {
 public:
  TESSERA_ANYWHERE explicit Processor(Doorbell* bell = nullptr) : bell_(bell) {}

  /// True if there is a task; reliable for the processor's holder only.
  template <class Words>
  TESSERA_ANYWHERE bool called(Words& words) const {
    return words.load(&bell_->word) != 0;
  }
  /// True if there is a task; then `task` is set, and done() follows after the work.
  template <class Words>
  TESSERA_ANYWHERE bool take(Task& task, Words& words) const {
    if (!called(words)) return false;
    task = bell_->task;
    return true;
  }
  template <class Words>
  TESSERA_ANYWHERE void done(Words& words) const {
    words.store(&bell_->word, 0);
  }

 private:
  Doorbell* bell_;
};

}  // namespace tessera::fused
