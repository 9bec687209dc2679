#include "fused/actors.h"

#include <exception>
#include <utility>

#include "base/as_error.h"
#include "base/fail.h"
#include "base/stop.h"
#include "tensor/scope.h"
#include "tensor/work_count.h"

namespace tessera::fused {
namespace {

using Clock = std::chrono::steady_clock;

bool is_product(TaskKind kind) {
  return kind == TaskKind::up || kind == TaskKind::down || kind == TaskKind::shared;
}

size_t processors_of(const std::vector<MoeOperator*>& operators) {
  size_t sum = 0;
  for (const MoeOperator* op : operators) sum += static_cast<size_t>(op->processors());
  return sum;
}

}  // namespace

// The time without work on any actor of this rank.
class Actors::Rest {
 public:
  explicit Rest(const Actors& actors) : actors_(actors) {}
  bool over() {
    const uint64_t activity = actors_.activity_;
    if (activity != last_activity_ || actors_.busy_ > 0) {
      last_activity_ = activity;
      since_ = Clock::now();
    }
    return Clock::now() - since_ >= kStay;
  }

 private:
  const Actors& actors_;
  uint64_t last_activity_ = 0;
  Clock::time_point since_ = Clock::now();
};

Actors::Actors(std::vector<MoeOperator*> operators)
    : operators_(std::move(operators)),
      processor_locks_(std::make_unique<std::atomic<bool>[]>(processors_of(operators_))) {}

nn::Tensor Actors::run(const nn::Tensor& tokens, const nn::Gate& gate,
                       const nn::ExpertWeights& weights) {
  MoeOperator& op = *operators_[0];
  op.begin(tokens, gate, weights);
  drive([&op] { return op.done(); });
  return op.result();
}

void Actors::drive(const std::function<bool()>& over) {
  if (over()) return;
  over_ = &over;
  done_ = failed_ = false;
  for (start(); !done_; start()) wait_alone();
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
      ranks().fail_all(base::as_error(e));
      throw;
    }
  });
}

void Actors::act() {
  Standby standby(ranks(), [this] { return awaited(); });
  Rest rest(*this);
  while (!done_.load(std::memory_order_acquire) && !failed_ && !resting_) {
    const bool has_arrivals = poll(), worked = work();
    if (has_arrivals || worked) {
      ++activity_;
      ranks().advance();
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
  Standby standby(ranks(), [this] { return awaited(); });
  while (!called() && !poll())
    if (!standby.wait()) stand_still(standby.seconds());
}

// The rank behind this rank's standstill; -1: none, or known to another actor.
int Actors::awaited() {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return -1;
  for (const MoeOperator* op : operators_) {
    if (op->done()) continue;
    const Arrival missing = op->coordinator().missing();
    if (missing.kind != Arrival::Kind::nothing) return missing.peer;
  }
  return -1;
}

bool Actors::called() const {
  for (const MoeOperator* op : operators_)
    for (int p = 0; p < op->processors(); ++p)
      if (op->called(p)) return true;
  return false;
}

bool Actors::poll() {
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool has_arrivals = false;
  for (MoeOperator* op : operators_) has_arrivals |= !op->done() && op->poll();
  if ((*over_)()) done_.store(true, std::memory_order_release);
  return has_arrivals;
}

bool Actors::work() { return work(false) || work(true); }

// Takes any processor with such a task and no actor.
bool Actors::work(bool products) {
  size_t at = 0;
  for (MoeOperator* op : operators_)
    for (int p = 0; p < op->processors(); ++p, ++at) {
      std::atomic<bool>& busy = processor_locks_[at];
      if (!op->called(p) || busy.exchange(true, std::memory_order_acquire)) continue;
      bool worked = false;
      if (is_product(op->next(p)) == products) {
        ++busy_;
        worked = op->work(p);
        --busy_;
      }
      busy.store(false, std::memory_order_release);
      if (worked) return true;
    }
  return false;
}

void Actors::stand_still(double seconds) {
  const std::lock_guard lock(polling_);
  const SymmetricHeap& heap = operators_[0]->heap();
  const int me = heap.in_world(heap.rank());
  uint64_t epoch = 0;
  for (const MoeOperator* op : operators_) {
    if (op->done()) continue;
    const Coordinator& coordinator = op->coordinator();
    const Arrival missing = coordinator.missing();
    epoch = coordinator.epoch();
    if (missing.kind == Arrival::Kind::nothing) continue;
    fail(ErrorCode::rank,
         "fused experts: rank {} waits in epoch {} for the {} of rank {} (expert {}, tile {}, flag "
         "at {}); no rank got on in {} s; see what that rank does, or raise `comm_timeout`",
         me, epoch, word_of(missing.kind), heap.in_world(missing.peer), missing.tile.expert,
         missing.tile.index, missing.word, seconds);
  }
  fail(ErrorCode::rank,
       "fused experts: rank {} waits in epoch {} for its own tasks, of which none ended in {} s",
       me, epoch, seconds);
}

}  // namespace tessera::fused
