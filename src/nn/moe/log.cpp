#include "nn/moe/log.h"

#include <algorithm>

#include "tensor/scope.h"

namespace tessera::nn {
namespace {

constexpr size_t kMostUncounted = 256;  // calls between two counts of a device's routing

}  // namespace

void MoeLog::count(const Tensor& ids, MoeEvent& event) const {
  std::vector<bool> is_used;
  int64_t rows = 0;
  for (int64_t t = 0; t < ids.size(0); ++t)
    for (int64_t j = 0; j < ids.size(1); ++j) {
      const int32_t id = ids.row<int32_t>(t)[j];
      if (id < 0) continue;
      ++rows;
      const auto expert = static_cast<size_t>(id);
      if (expert >= is_used.size()) is_used.resize(expert + 1);
      if (expert >= load_.size()) load_.resize(expert + 1);
      ++load_[expert];
      if (is_used[expert]) continue;
      is_used[expert] = true;
      ++event.distinct;
    }
  event.assignments = {rows};
}

void MoeLog::chose(const Tensor& ids, int64_t experts) {
  MoeEvent unused;
  load_.resize(std::max(load_.size(), static_cast<size_t>(experts)));
  if (!ids.is_meta()) count(ids, unused);
}

const std::vector<int64_t>& MoeLog::load() const {
  settle();
  return load_;
}

void MoeLog::settle() const {
  std::vector<Tensor> ids;
  for (const auto& [at, routed] : uncounted_) ids.push_back(routed);
  ids = tensor::to_host(ids);
  for (size_t i = 0; i < ids.size(); ++i) count(ids[i], events_[uncounted_[i].first]);
  uncounted_.clear();
}

const std::vector<MoeEvent>& MoeLog::events() const {
  settle();
  return events_;
}

void MoeLog::count_later(const MoeEvent& event, const Tensor& ids) {
  if (uncounted_.size() >= kMostUncounted) settle();
  uncounted_.emplace_back(events_.size(), ids);
  events_.push_back(event);
}

void MoeLog::replayed(int step) {
  for (auto& [event, ids] : recorded_) {
    const Tensor now = Tensor::empty(ids.shape(), ids.dtype(), ids.device());
    tensor::copy_into(now, ids);
    event.step = step;
    count_later(event, now);
  }
}

void MoeLog::add(const MoeCall& call, const Tensor& ids, int64_t experts) {
  MoeEvent event{
      .step = call.step.index, .site = call.site, .tokens = ids.size(0), .assignments = {}};
  const tensor::Scope& scope = tensor::current_scope();
  if (!ids.is_meta()) load_.resize(std::max(load_.size(), static_cast<size_t>(experts)));
  if (ids.is_meta()) {
    event.assignments = {ids.elements()};
    event.distinct =
        static_cast<int64_t>(scope.assumptions.touched_experts * static_cast<double>(experts));
    events_.push_back(event);
  } else if (scope.recording) {
    recorded_.emplace_back(event, ids);
  } else if (ids.device() == tensor::Device::cpu) {
    count(ids, event);  // at once, so nothing is kept
    events_.push_back(event);
  } else {
    count_later(event, ids);
  }
}

}  // namespace tessera::nn
