#pragma once

#include <vector>

#include "tessera/plan.h"

namespace tessera::study {

/// Every plan for exactly this many ranks in `bench parallel`, valid or not; with `experts` also
/// plans with shared experts. All are different.
std::vector<Plan> plans_for(int ranks, bool experts);

}  // namespace tessera::study
