#pragma once

#include <vector>

#include "tessera/plan.h"

namespace tessera::parallel {

/// The expert results read by each step and layer of a request, and the rows to send: a
/// pure function of the plan (DICE, ICCV 2025, sections 3 and 4). Layers are MoE layers,
/// from 0.
class Timetable {
 public:
  /// Throws Error(plan) when a layer of the plan's list does not exist.
  Timetable(const Plan& plan, int layers, int steps);

  int steps() const { return steps_; }
  /// Nothing is stale in this step; earlier results are dropped.
  bool forced(int step) const { return plan_.fresh(step, steps_); }
  /// True if the layer ever reads results, or single rows, of earlier steps.
  bool asynchronous(int layer) const;
  /// Age of the result read in the step.
  int lag(int step, int layer) const;
  /// True if any step reads the result of this source step; otherwise its work may be left out.
  bool consumed(int step, int layer) const;
  /// True if all slots are sent, not only the kept slot and changed experts.
  bool full(int step, int layer) const;
  /// True if rows are chosen by the movement of their tokens, not by slot.
  bool adaptive(int layer) const;
  /// True if some step of the layer is not full and needs rows of the step before.
  bool reuses(int layer) const;

 private:
  int last_forced(int step) const;
  Plan plan_;
  int steps_;
  std::vector<bool> synchronous_;
};

/// Reasons against the expert schedule of a plan on a model, one sentence each.
std::vector<std::string> schedule_problems(const Plan& plan, int layers);

}  // namespace tessera::parallel
