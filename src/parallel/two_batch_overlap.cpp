#include "parallel/two_batch_overlap.h"

#include <thread>
#include <utility>

#include "tensor/run_watcher.h"
#include "tensor/scope.h"
#include "tensor/work_count.h"

namespace tessera::parallel {

void TwoBatchOverlap::work(int number, const std::function<void(int)>& piece) {
  std::exception_ptr error;
  try {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return turn_ == number; });
      if (failure_) throw Interrupted{};
    }
    piece(number);
  } catch (const Interrupted&) {
    error = nullptr;  // the other piece has the error
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    if (error && !failure_) failure_ = std::move(error);
    ended_[number] = true;
    turn_ = 1 - number;
  }
  changed_.notify_all();
}

void TwoBatchOverlap::run(const std::function<void(int)>& piece) {
  {
    // The thread shares the pool, the meter, the memory count and the watcher of this thread.
    std::jthread other([&, scope = tensor::current_scope(), watcher = tensor::run_watcher(),
                        count = tensor::work_count()] {
      const tensor::BindScope bind(scope);
      const tensor::BindRunWatcher watched(watcher);
      const tensor::BindWorkCount counted(count);
      work(1, piece);
    });
    {
      const std::lock_guard lock(mutex_);
      turn_ = 0;
    }
    work(0, piece);
  }
  turn_ = -1;
  ended_[0] = ended_[1] = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void TwoBatchOverlap::hand_over() {
  std::unique_lock lock(mutex_);
  const int own_turn = turn_;
  if (own_turn < 0 || ended_[1 - own_turn]) return;
  turn_ = 1 - own_turn;
  changed_.notify_all();
  changed_.wait(lock, [&] { return turn_ == own_turn; });
  if (failure_) throw Interrupted{};
}

}  // namespace tessera::parallel
