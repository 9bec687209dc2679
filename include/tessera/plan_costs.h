#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/request.h"

namespace tessera {

/// A comparison of all plans for some ranks on one request.
struct PlanCostsRequest {
  GenerateRequest
      generate;    ///< the request of all plans; without a class or prompt the first of the model
  int ranks = 2;   ///< ranks of each plan
  int rounds = 3;  ///< runs of all plans in turn; the median counts
  double seconds = 120;  ///< latest start of a run; 0: no runs
  int most = 200;        ///< predicted plans; plans with fewer axes come first
};
/// The cost of a plan. All but the time is predicted, by a run without data.
struct PlanCost {
  std::string plan;
  double seconds = -1;              ///< a step with warm-up, median of the rounds; -1: not measured
  int rounds = 0;                   ///< rounds behind this median
  int64_t bytes = 0, messages = 0;  ///< sent by all ranks in a step, mean of the first ones
  int64_t rank_bytes = 0;           ///< the largest memory of a rank
  double flops = 0;                 ///< a step, on the rank with the most work
};
struct PlanCosts {
  std::vector<PlanCost> plans;  ///< fastest first, then unmeasured plans by FLOPs
  int refused = 0;              ///< plans for these ranks that cannot run this request
  int too_large = 0;            ///< plans above the memory
  int untried = 0;              ///< beyond PlanCostsRequest::most, or after a stop
  bool stopped = false;         ///< before all plans were done
};
/// Tries every product of axes, 1 to 32 patches for the stages of each, and experts over ranks,
/// synchronous and interweaved. `progress` receives "predicted" or "measured", the number of plans
/// done, and their total. After a stop request the finished plans are returned. Processes all call
/// this function and get the same plans. Throws Error(usage) for a model without images, and as
/// Model::generate does.
PlanCosts compare_plans(
    const std::string& model, const RunOptions& options, const PlanCostsRequest& request,
    const std::function<void(const std::string& what, int done, int all)>& progress,
    const std::stop_token& stop = {});
/// A JSON object in a single line.
std::string to_json(const PlanCost& cost);

}  // namespace tessera
