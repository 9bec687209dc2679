#include "fused/actors.h"

#include <exception>

#include "base/as_error.h"
#include "base/fail.h"
#include "base/stop.h"
#include "tensor/scope.h"
#include "tensor/work_count.h"

namespace tessera::fused {
namespace {

using Clock = std::chrono::steady_clock;

const char* word_of(Arrival::Kind kind) {
  switch (kind) {
    case Arrival::Kind::counts: return "counts";
    case Arrival::Kind::rows: return "rows";
    case Arrival::Kind::results: return "results";
    case Arrival::Kind::refused:
    case Arrival::Kind::nothing: break;
  }
  return "nothing";
}

}  // namespace

// The time without work on any actor of this rank.
class Actors::Rest {
 public:
  explicit Rest(const Actors& actors) : actors_(actors) {}
  bool over() {
    const uint64_t found = actors_.found_;
    if (found != seen_ || actors_.busy_ > 0) {
      seen_ = found;
      since_ = Clock::now();
    }
    return Clock::now() - since_ >= kStay;
  }

 private:
  const Actors& actors_;
  uint64_t seen_ = 0;
  Clock::time_point since_ = Clock::now();
};

Actors::Actors(MoeOperator& one)
    : operator_(one),
      taken_(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(one.processors()))) {}

nn::Tensor Actors::run(const nn::Tensor& tokens, const nn::Gate& gate,
                       const nn::ExpertWeights& weights) {
  operator_.begin(tokens, gate, weights);
  done_ = failed_ = false;
  for (start(); !done_; start()) wait_alone();
  return operator_.result();
}

void Actors::start() {
  tensor::Scope scope = tensor::current_scope();
  scope.pool = nullptr;  // each thread already is an actor
  resting_ = false;
  tensor::WorkCount* const count = tensor::work_count();
  tensor::parallel_tasks(tensor::thread_count(), [&](int64_t) {
    const tensor::BindScope bound(scope);
    const tensor::BindWorkCount counted(count);
    try {
      act();
    } catch (const std::exception& e) {
      failed_ = true;  // the others end after their current task
      operator_.heap().ranks().fail_all(base::as_error(e));
      throw;
    }
  });
}

void Actors::act() {
  Standby standby(operator_.heap().ranks(), [this] { return awaited(); });
  Rest rest(*this);
  while (!done_.load(std::memory_order_acquire) && !failed_ && !resting_) {
    const bool found = poll(), worked = work();
    if (found || worked) {
      ++found_;
      operator_.heap().ranks().advance();
      standby.over();
    } else if (!standby.wait()) {
      stand_still(standby.seconds());
    } else if (rest.over()) {
      resting_ = true;
    }
  }
}

// Waits without the shared threads.
void Actors::wait_alone() {
  Standby standby(operator_.heap().ranks(), [this] { return awaited(); });
  while (!called() && !poll())
    if (!standby.wait()) stand_still(standby.seconds());
}

// The rank behind this rank's standstill; -1: none, or known to another actor.
int Actors::awaited() {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return -1;
  const Arrival missing = operator_.coordinator().missing();
  return missing.kind == Arrival::Kind::nothing ? -1 : missing.peer;
}

bool Actors::called() const {
  for (int p = 0; p < operator_.processors(); ++p)
    if (operator_.called(p)) return true;
  return false;
}

bool Actors::poll() {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const bool found = operator_.poll();
  if (operator_.done()) done_.store(true, std::memory_order_release);
  return found;
}

// Takes any processor with a task and no actor.
bool Actors::work() {
  for (int p = 0; p < operator_.processors(); ++p) {
    std::atomic<bool>& taken = taken_[static_cast<size_t>(p)];
    if (!operator_.called(p) || taken.exchange(true, std::memory_order_acquire)) continue;
    ++busy_;
    const bool worked = operator_.work(p);
    --busy_;
    taken.store(false, std::memory_order_release);
    if (worked) return true;
  }
  return false;
}

void Actors::stand_still(double seconds) {
  const std::lock_guard lock(polling_);
  const SymmetricHeap& heap = operator_.heap();
  const Coordinator& coordinator = operator_.coordinator();
  const int me = heap.in_world(heap.rank());
  const Arrival missing = coordinator.missing();
  require(missing.kind != Arrival::Kind::nothing, ErrorCode::rank,
          "fused experts: rank {} waits in epoch {} for its own tasks, of which none ended in {} s",
          me, coordinator.epoch(), seconds);
  fail(ErrorCode::rank,
       "fused experts: rank {} waits in epoch {} for the {} of rank {} (expert {}, tile {}, flag "
       "at {}); no rank got on in {} s; see what that rank does, or raise `comm_timeout`",
       me, coordinator.epoch(), word_of(missing.kind), heap.in_world(missing.peer),
       missing.tile.expert, missing.tile.index, missing.word, seconds);
}

}  // namespace tessera::fused
