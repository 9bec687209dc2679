#pragma once

#include <vector>

#include "models/registry.h"
#include "parallel/setup.h"
#include "tessera/report.h"
#include "tessera/request.h"

namespace tessera::pipeline {

/// Memory of each rank of a plan, on meta. Throws Error(plan) for a plan that cannot run this.
std::vector<Inspection::Rank> rank_memory(const models::PipelineSpec& recipe,
                                          const RunOptions& options, const nn::TokenLayout& layout,
                                          const parallel::Workload& workload);

}  // namespace tessera::pipeline
