#include "parallel/experts/timetable.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::parallel {

std::vector<std::string> schedule_problems(const Plan& plan, int layers) {
  std::vector<std::string> problems;
  const bool needs_experts =
      plan.expert > 1 || plan.schedule != ExpertSchedule::sync || plan.conditional != KeptSlot::all;
  if (layers == 0 && needs_experts)
    return {
        "expert=, schedule= and conditional= need a model with experts, and this one has none: "
        "leave them out"};
  for (int layer : plan.sync_list)
    if (layer >= layers)
      problems.push_back(fmt::format("sync={} names layer {}; choose from the MoE layers 0 to {}",
                                     fmt::join(plan.sync_list, "+"), layer, layers - 1));
  return problems;
}

Timetable::Timetable(const Plan& plan, int layers, int steps)
    : plan_(plan), steps_(steps), synchronous_(static_cast<size_t>(layers)) {
  const auto problems = schedule_problems(plan, layers);
  require(problems.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(problems, "; "));
  for (int l = 0; l < layers; ++l) {
    bool sync = plan.synchronous();
    switch (plan.sync) {
      case SyncLayers::none: break;
      case SyncLayers::deep: sync |= l >= layers / 2; break;
      case SyncLayers::shallow: sync |= l < layers / 2; break;
      case SyncLayers::staggered: sync |= l % 2 == 1; break;
      case SyncLayers::list:
        sync |= std::count(plan.sync_list.begin(), plan.sync_list.end(), l) > 0;
        break;
    }
    synchronous_[static_cast<size_t>(l)] = sync;
  }
}

bool Timetable::asynchronous(int layer) const {
  return !synchronous_.at(static_cast<size_t>(layer));
}

int Timetable::last_forced(int step) const {
  while (!forced(step)) --step;  // step 0 is always forced
  return step;
}

int Timetable::lag(int step, int layer) const {
  if (!asynchronous(layer)) return 0;
  if (plan_.schedule == ExpertSchedule::adaptive) return 0;
  const int since = step - last_forced(step);
  return std::min(since, plan_.schedule == ExpertSchedule::interweaved ? 1 : 2);
}

bool Timetable::consumed(int step, int layer) const {
  for (int later = step; later < std::min(step + 3, steps_); ++later)
    if (later - lag(later, layer) == step) return true;
  return false;
}

bool Timetable::full(int step, int layer) const {
  if (!reuses(layer)) return true;
  return forced(step) || (!adaptive(layer) && (steps_ - step) % plan_.stride == 0);
}

bool Timetable::adaptive(int layer) const {
  return plan_.schedule == ExpertSchedule::adaptive && asynchronous(layer);
}

bool Timetable::reuses(int layer) const {
  return adaptive(layer) || (plan_.conditional != KeptSlot::all && plan_.stride > 1 &&
                             (plan_.conditional_all_layers || asynchronous(layer)));
}

}  // namespace tessera::parallel
