#pragma once

#include <vector>

#include "tessera/plan.h"

namespace tessera::planner {

/// Limits of the plans of a search.
struct Choice {
  int ranks = 1;
  int samples = 1;       ///< of the request
  bool branches = true;  ///< guidance makes two sequences of a sample
  bool stale = false;    ///< plans that change results
  int experts = 0;       ///< of a layer; 0: the model has none
  int blocks = 1;
};
/// Products of at most four axes, in a fixed order; PipeFusion with as many patches as stages, and
/// twice and four times as many; experts over all ranks that hold different tokens.
std::vector<Plan> candidates(const Choice& choice);

}  // namespace tessera::planner
