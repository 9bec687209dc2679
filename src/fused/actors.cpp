#include "fused/actors.h"

#include <thread>

#include "base/fail.h"
#include "base/stop.h"
#include "tensor/scope.h"
#include "tensor/work_count.h"

namespace tessera::fused {
namespace {

using Clock = std::chrono::steady_clock;

// One actor's wait for something to do: it yields, then sleeps, so that others get the core.
class Idle {
 public:
  Idle(const ThreadRanks& ranks, std::chrono::milliseconds deadline)
      : ranks_(ranks), deadline_(deadline) {}
  void worked() { turns_ = 0; }
  /// False: no rank has got on for the deadline.
  bool wait() {
    if (++turns_ < 64) {
      std::this_thread::yield();
      return true;
    }
    const uint64_t now = ranks_.progress();
    if (turns_ == 64 || now != seen_) since_ = Clock::now();
    seen_ = now;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return Clock::now() - since_ < deadline_;
  }

 private:
  const ThreadRanks& ranks_;
  const std::chrono::milliseconds deadline_;
  int turns_ = 0;
  uint64_t seen_ = 0;
  Clock::time_point since_{};
};

const char* word_of(Arrival::Kind kind) {
  switch (kind) {
    case Arrival::Kind::counts: return "counts";
    case Arrival::Kind::rows: return "rows";
    case Arrival::Kind::results: return "results";
    case Arrival::Kind::nothing: break;
  }
  return "nothing";
}

}  // namespace

Actors::Actors(MoeOperator& one, ThreadRanks& ranks, std::chrono::milliseconds deadline)
    : operator_(one),
      ranks_(ranks),
      deadline_(deadline),
      at_work_(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(one.processors()))) {}

nn::Tensor Actors::run(const nn::Tensor& tokens, const nn::Gate& gate,
                       const nn::ExpertWeights& weights) {
  tensor::Scope scope = tensor::current_scope();
  scope.pool = nullptr;  // each of them is one already
  tensor::WorkCount* const count = tensor::work_count();
  ranks_.check();
  try {
    operator_.begin(tokens, gate, weights);
    done_ = false;
    tensor::parallel_tasks(tensor::thread_count(), [&](int64_t) {
      const tensor::BindScope bound(scope);
      const tensor::BindWorkCount counted(count);
      try {
        act();
      } catch (...) {
        ranks_.fail(std::current_exception());
        throw;
      }
    });
    return operator_.result();
  } catch (...) {
    ranks_.fail(std::current_exception());
    throw;
  }
}

void Actors::act() {
  Idle idle(ranks_, deadline_);
  while (!done_.load(std::memory_order_acquire)) {
    base::check_stop();
    ranks_.check();
    const bool found = poll(), worked = work();
    if (found || worked) {
      ranks_.advance();
      if (tensor::WorkCount* const count = tensor::work_count())
        count->fetch_add(1, std::memory_order_relaxed);
      idle.worked();
    } else if (!idle.wait()) {
      stand_still();
    }
  }
}

bool Actors::poll() {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const bool found = operator_.poll();
  if (operator_.done()) done_.store(true, std::memory_order_release);
  return found;
}

// Whichever processor has a task and nobody at it.
bool Actors::work() {
  for (int p = 0; p < operator_.processors(); ++p) {
    std::atomic<bool>& at_work = at_work_[static_cast<size_t>(p)];
    if (at_work.exchange(true, std::memory_order_acquire)) continue;
    const bool worked = operator_.work(p);
    at_work.store(false, std::memory_order_release);
    if (worked) return true;
  }
  return false;
}

void Actors::stand_still() {
  const std::lock_guard lock(polling_);
  const Arrival missing = operator_.coordinator().missing();
  const double seconds = std::chrono::duration<double>(deadline_).count();
  require(missing.kind != Arrival::Kind::nothing, ErrorCode::rank,
          "fused experts: rank {} waits in epoch {} for its own tasks, of which none ended in {} s",
          operator_.rank(), operator_.coordinator().epoch(), seconds);
  fail(ErrorCode::rank,
       "fused experts: rank {} waits in epoch {} for the {} of rank {} (expert {}, tile {}); no "
       "rank "
       "got on in {} s",
       operator_.rank(), operator_.coordinator().epoch(), word_of(missing.kind), missing.peer,
       missing.tile.expert, missing.tile.index, seconds);
}

}  // namespace tessera::fused
