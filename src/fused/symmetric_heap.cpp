#include "fused/symmetric_heap.h"

#include <thread>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "fused/queue.h"

namespace tessera::fused {

void Standby::over() {
  turns_ = 0;
  if (std::exchange(others_know_, false)) ranks_.wait_for(-1);
}

bool Standby::wait() {
  constexpr int kYields = 64;
  if (++turns_ < kYields) {
    std::this_thread::yield();
    return true;
  }
  base::check_stop();
  ranks_.check();
  if (turns_ == kYields) patience_.emplace(ranks_.patience());
  if (const int rank = others_know_ ? -1 : awaited_(); rank >= 0) {
    ranks_.wait_for(rank);
    others_know_ = true;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  return !patience_->over();
}

void SymmetricHeap::wait(int64_t word, uint64_t value) const {
  const auto* const at = reinterpret_cast<const uint64_t*>(memory_ + word);
  Standby standby(*ranks_);
  while (SharedWords::load(at) != value)
    if (!standby.wait())
      fail(ErrorCode::rank,
           "rank {} waits for the word at {} of its memory to be {}; it is {}, and no rank got on "
           "in {} s",
           in_world(rank_), word, value, SharedWords::load(at), standby.seconds());
}

}  // namespace tessera::fused
