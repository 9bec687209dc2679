#pragma once

#include <vector>

#include "tessera/plan.h"

namespace tessera::parallel {

/// Which expert results each step and layer of a request reads, and which of their rows are sent: a
/// pure function of the plan (DICE, ICCV 2025, sections 3 and 4). Layers are MoE layers, counted
/// from 0.
class Timetable {
 public:
  /// Throws Error(plan) when a layer of the plan's list does not exist.
  Timetable(const Plan& plan, int layers, int steps);

  int steps() const { return steps_; }
  /// Nothing is stale in this step; earlier results are dropped.
  bool forced(int step) const { return plan_.fresh(step, steps_); }
  /// Whether the layer ever reads results, or single rows, of earlier steps.
  bool asynchronous(int layer) const;
  /// Age of the result that the step reads.
  int lag(int step, int layer) const;
  /// Whether any step reads the result of this source step; otherwise its work can be left out.
  bool consumed(int step, int layer) const;
  /// Whether all slots are sent, not only the kept one and those whose expert changed.
  bool full(int step, int layer) const;
  /// Whether the rows to send are chosen by how far their tokens moved, not by their slot.
  bool adaptive(int layer) const;
  /// Whether some step of the layer is not full, so that rows of the previous step are needed.
  bool reuses(int layer) const;

 private:
  int last_forced(int step) const;
  Plan plan_;
  int steps_;
  std::vector<bool> synchronous_;
};

/// Why the expert schedule of a plan does not fit a model, one sentence each.
std::vector<std::string> schedule_problems(const Plan& plan, int layers);

}  // namespace tessera::parallel
