#include "runtime/model_pool.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tessera::runtime {

PooledModel::PooledModel(ModelPool& among, Keeps keeps) : among_(among), keeps_(std::move(keeps)) {
  const std::lock_guard lock(among_.mutex_);
  among_.all_.push_back(this);
}

PooledModel::~PooledModel() {
  const std::lock_guard lock(among_.mutex_);
  std::erase(among_.all_, this);
}

// Bytes of all runs except `but`; shared weights count once.
int64_t PooledModel::taken(const MemoryReservation* but) const {
  int64_t weights = 0, rest = 0;
  for (const MemoryReservation* run : runs_) {
    if (run == but) continue;
    weights = std::max(weights, run->weights_);
    rest += run->bytes_ - run->weights_;
  }
  return weights + rest;
}

int64_t PooledModel::held() const { return std::max(keeps_.bytes(), taken()); }

MemoryReservation::~MemoryReservation() {
  if (!of_) return;
  ModelPool& all = of_->among_;
  const std::lock_guard lock(all.mutex_);
  std::erase(of_->runs_, this);
  of_->used_ = ++all.turn_;
}

bool MemoryReservation::take(int64_t bytes, int64_t weights, int64_t room,
                             std::vector<Held>& others, Idle idle) {
  others.clear();
  if (!of_) return true;
  ModelPool& all = of_->among_;
  const std::lock_guard lock(all.mutex_);
  const auto before = std::pair{bytes_, weights_};
  const bool first = std::ranges::find(of_->runs_, this) == of_->runs_.end();
  if (first) of_->runs_.push_back(this);
  std::tie(bytes_, weights_) = std::pair{bytes, weights};
  const auto refused = [&] {
    std::tie(bytes_, weights_) = before;
    if (first) std::erase(of_->runs_, this);
    return false;
  };
  int64_t working = 0;
  std::vector<PooledModel*> resting;
  for (PooledModel* one : all.all_) {
    if (one->runs_.empty())
      resting.push_back(one);
    else
      working += one->held();
    const int64_t of_others = one == of_ ? one->taken(this) : one->runs_.empty() ? 0 : one->held();
    if (of_others > 0) others.push_back({one->keeps_.name, of_others});
  }
  if (working > room && !others.empty()) return refused();
  others.clear();
  std::ranges::sort(resting, {}, &PooledModel::used_);
  const auto all_held = [&] {
    int64_t sum = working;
    for (const PooledModel* one : resting) sum += one->keeps_.bytes();
    return sum;
  };
  for (auto next = resting.begin(); next != resting.end() && all_held() > room; ++next) {
    if (idle == Idle::stay) return refused();
    (*next)->keeps_.release();
  }
  of_->used_ = ++all.turn_;
  return true;
}

}  // namespace tessera::runtime
