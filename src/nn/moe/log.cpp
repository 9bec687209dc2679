#include "nn/moe/log.h"

#include <algorithm>
#include <iterator>

#include "tensor/scope.h"

namespace tessera::nn {
namespace {

constexpr size_t kMostUncounted = 256;  // calls between two looks at what was routed

}  // namespace

void MoeLog::settle() const {
  for (const auto& [at, ids] : uncounted_) {
    std::vector<int64_t> seen = ids.to_ints();
    std::sort(seen.begin(), seen.end());
    const auto first = std::lower_bound(seen.begin(), seen.end(), int64_t{0});
    events_[at].rows = {std::distance(first, seen.end())};
    events_[at].distinct = std::distance(first, std::unique(first, seen.end()));
  }
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
  MoeEvent event{.step = call.step.index, .site = call.site, .tokens = ids.size(0), .rows = {}};
  const tensor::Scope& scope = tensor::current_scope();
  if (ids.is_meta()) {
    event.rows = {ids.elements()};
    event.distinct =
        static_cast<int64_t>(scope.assumptions.touched_experts * static_cast<double>(experts));
    events_.push_back(event);
  } else if (scope.recording) {
    recorded_.emplace_back(event, ids);
  } else {
    count_later(event, ids);
  }
}

}  // namespace tessera::nn
