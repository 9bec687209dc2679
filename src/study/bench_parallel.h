#pragma once

#include <vector>

#include "tessera/plan.h"

namespace tessera::study {

/// Every plan for exactly so many ranks that `bench parallel` asks for, runnable or not; with
/// `experts` those that share experts, too. No two are equal.
std::vector<Plan> plans_for(int ranks, bool experts);

}  // namespace tessera::study
