#include "runtime/model_pool.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tessera::runtime {

PooledModel::PooledModel(ModelPool& among, Keeps keeps) : pool_(among), keeps_(std::move(keeps)) {
  const std::lock_guard lock(pool_.mutex_);
  pool_.all_.push_back(this);
}

PooledModel::~PooledModel() {
  const std::lock_guard lock(pool_.mutex_);
  std::erase(pool_.all_, this);
}

// Bytes of all runs except `but`; shared weights count once.
int64_t PooledModel::reserved_bytes(const MemoryReservation* but) const {
  int64_t weights = 0, rest = 0;
  for (const MemoryReservation* run : runs_) {
    if (run == but) continue;
    weights = std::max(weights, run->weights_);
    rest += run->bytes_ - run->weights_;
  }
  return weights + rest;
}

int64_t PooledModel::held_bytes() const { return std::max(keeps_.bytes(), reserved_bytes()); }

MemoryReservation::~MemoryReservation() {
  if (!model_) return;
  ModelPool& pool = model_->pool_;
  const std::lock_guard lock(pool.mutex_);
  std::erase(model_->runs_, this);
  model_->last_turn_ = ++pool.turn_;
}

bool MemoryReservation::take(int64_t bytes, int64_t weights, int64_t room,
                             std::vector<ModelMemory>& others, Idle idle) {
  others.clear();
  if (!model_) return true;
  ModelPool& pool = model_->pool_;
  const std::lock_guard lock(pool.mutex_);
  const auto before = std::pair{bytes_, weights_};
  const bool first = std::ranges::find(model_->runs_, this) == model_->runs_.end();
  if (first) model_->runs_.push_back(this);
  std::tie(bytes_, weights_) = std::pair{bytes, weights};
  const auto refuse = [&] {
    std::tie(bytes_, weights_) = before;
    if (first) std::erase(model_->runs_, this);
    return false;
  };
  int64_t working = 0;
  std::vector<PooledModel*> resting;
  for (PooledModel* model : pool.all_) {
    if (model->runs_.empty())
      resting.push_back(model);
    else
      working += model->held_bytes();
    const int64_t of_others = model == model_        ? model->reserved_bytes(this)
                              : model->runs_.empty() ? 0
                                                     : model->held_bytes();
    if (of_others > 0) others.push_back({model->keeps_.name, of_others});
  }
  if (working > room && !others.empty()) return refuse();
  others.clear();
  std::ranges::sort(resting, {}, &PooledModel::last_turn_);
  const auto all_held = [&] {
    int64_t sum = working;
    for (const PooledModel* model : resting) sum += model->keeps_.bytes();
    return sum;
  };
  for (auto next = resting.begin(); next != resting.end() && all_held() > room; ++next) {
    if (idle == Idle::stay) return refuse();
    (*next)->keeps_.release();
  }
  model_->last_turn_ = ++pool.turn_;
  return true;
}

}  // namespace tessera::runtime
