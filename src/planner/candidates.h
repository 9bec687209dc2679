#pragma once

#include <vector>

#include "tessera/plan.h"

namespace tessera::planner {

/// Limits of the plans of a search.
struct Choice {
  int ranks = 1;
  int samples = 1;       ///< samples of the request
  bool branches = true;  ///< guidance doubles the sequences of a sample
  bool stale = false;    ///< allow plans with stale data, which change results
  int experts = 0;       ///< experts of a layer; 0: no experts
  int blocks = 1;
  bool fused = false;  ///< ranks are CPUs, so moe=fused runs
};
/// Products of at most four axes, in a fixed order. PipeFusion has as many patches as stages, or
/// twice or four times as many; experts are split over all ranks with different tokens, stale ones
/// by exchanges and by fused layers.
std::vector<Plan> candidates(const Choice& choice);

}  // namespace tessera::planner
