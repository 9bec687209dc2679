#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "planner/timeline.h"
#include "tensor/run_watcher.h"
#include "tessera/prediction.h"

namespace tessera {
namespace planner {
namespace {

using Clock = std::chrono::steady_clock;
// Run, sender, receiver, channel and number: both ends of a message know them.
using MessageKey = std::tuple<int, int, int, uint64_t, uint64_t>;

struct Sent {
  MessageKey key;
  Clock::time_point when;
  std::string operation;
  int step = -1;
};

struct Passed {
  Clock::time_point begin, end;
  bool waits = false;
  int step = -1;
};

/// Notes when a rank computes, waits, sends and receives. Used by the rank's thread alone.
class RankClock final : public tensor::RunWatcher {
 public:
  explicit RankClock(int rank) : rank_(rank) {}
  void begin_run() {
    ++run_;
    counts_.clear();
    within_ = false;
  }
  RunWatcher* of_rank(int) override { return nullptr; }
  void op(const char*, double, double, const tensor::OpSize&) override {}
  void sends(int peer, uint64_t channel, int64_t, const char* operation, int, int64_t) override {
    const uint64_t number = counts_[{peer, channel}]++;
    if (within_)
      sent.push_back({{run_, rank_, peer, channel, number}, Clock::now(), operation, step_});
  }
  void expects(int, uint64_t, uint64_t) override {}
  void waits(int, uint64_t, uint64_t) override { pass(false); }
  void arrives(int peer, uint64_t channel, uint64_t order, Clock::time_point when) override {
    arrived[{run_, peer, rank_, channel, order}] = when;
    pass(true);
  }
  void part(const char* name, int number) override {
    pass(false);
    const std::string_view part(name);
    within_ = !part.empty();
    step_ = part == "step" ? number : -1;
  }

  std::vector<Passed> passed;
  std::vector<Sent> sent;
  std::map<MessageKey, Clock::time_point> arrived;

 private:
  void pass(bool waited) {
    const auto now = Clock::now();
    if (within_) passed.push_back({since_, now, waited, step_});
    since_ = now;
  }
  const int rank_;
  int run_ = 0, step_ = -1;
  bool within_ = false;
  Clock::time_point since_{};
  std::map<std::pair<int, uint64_t>, uint64_t> counts_;
};

}  // namespace

/// Hands a clock to each rank of the watched thread's runs; dry runs get none.
class RunClocks final : public tensor::RunWatcher {
 public:
  RunWatcher* of_rank(int) override { return nullptr; }
  RunWatcher* of_real_rank(int rank) override {
    const std::lock_guard lock(mutex_);
    auto& clock = ranks_[rank];
    if (!clock) clock = std::make_unique<RankClock>(rank);
    clock->begin_run();
    return clock.get();
  }
  void op(const char*, double, double, const tensor::OpSize&) override {}
  void sends(int, uint64_t, int64_t, const char*, int, int64_t) override {}
  void expects(int, uint64_t, uint64_t) override {}
  void waits(int, uint64_t, uint64_t) override {}
  void part(const char*, int) override {}
  Simulation measured() const;

 private:
  mutable std::mutex mutex_;
  std::map<int, std::unique_ptr<RankClock>> ranks_;
};

// Seconds count from the first part of a run on.
Simulation RunClocks::measured() const {
  const std::lock_guard lock(mutex_);
  Simulation made;
  auto first = Clock::time_point::max();
  std::map<MessageKey, Clock::time_point> arrived;
  for (const auto& [rank, clock] : ranks_) {
    for (const Passed& passed : clock->passed) first = std::min(first, passed.begin);
    arrived.insert(clock->arrived.begin(), clock->arrived.end());
    made.rank_seconds.resize(static_cast<size_t>(rank) + 1);
  }
  made.compute_seconds.resize(made.rank_seconds.size());
  made.wait_seconds.resize(made.rank_seconds.size());
  const auto at = [&](Clock::time_point when) {
    return std::chrono::duration<double>(when - first).count();
  };
  for (const auto& [rank, clock] : ranks_) {
    const auto r = static_cast<size_t>(rank);
    for (const Passed& p : clock->passed) {
      const double begin = at(p.begin), end = at(p.end);
      made.spans.push_back({begin, end, rank, -1, p.waits ? "wait" : "compute", p.step});
      (p.waits ? made.wait_seconds : made.compute_seconds)[r] += end - begin;
      made.rank_seconds[r] = std::max(made.rank_seconds[r], end);
    }
    for (const Sent& sent : clock->sent) {
      const auto there = arrived.find(sent.key);
      if (there == arrived.end()) continue;  // nobody has waited for it
      made.spans.push_back({at(sent.when), at(std::max(there->second, sent.when)), rank,
                            std::get<2>(sent.key), sent.operation, sent.step});
    }
    made.seconds = std::max(made.seconds, made.rank_seconds[r]);
  }
  return made;
}

}  // namespace planner

struct RunTimeline::State {
  planner::RunClocks clocks;
  tensor::BindRunWatcher bound{&clocks};
};

RunTimeline::RunTimeline() : state_(std::make_unique<State>()) {}
RunTimeline::~RunTimeline() = default;

std::string RunTimeline::text(TimelineForm form) const {
  const planner::Simulation run = state_->clocks.measured();
  return form == TimelineForm::trace ? planner::trace_of(run, planner::TimelineOf::measurement)
                                     : planner::image_of(run);
}

}  // namespace tessera
