#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/request.h"

namespace tessera {

/// All plans for so many ranks, compared on one request.
struct PlanCostsRequest {
  GenerateRequest
      generate;          ///< what each plan denoises; without a class or prompt the model's first
  int ranks = 2;         ///< that each plan uses
  int rounds = 3;        ///< of all plans in turn; the median counts
  double seconds = 120;  ///< no run begins later than that; 0: none is made
  int most = 200;        ///< plans that are foretold; those of fewer axes come first
};
/// What a plan takes. But for the time all is foretold, by running the plan without elements.
struct PlanCost {
  std::string plan;
  double seconds = -1;  ///< of a step, the warm-up's too: median of the rounds; -1: not measured
  int rounds = 0;       ///< that this is the median of
  int64_t bytes = 0, messages = 0;  ///< that all ranks send in a step, on average of the first ones
  int64_t rank_bytes = 0;           ///< the most memory that a rank takes
  double flops = 0;                 ///< of a step, of the rank that computes most
};
struct PlanCosts {
  std::vector<PlanCost> plans;  ///< fastest first, then what was not measured, by FLOPs
  int refused = 0;              ///< plans for so many ranks that cannot run this request
  int too_large = 0;            ///< that do not fit into memory
  int untried = 0;              ///< beyond PlanCostsRequest::most, or when it was stopped
  bool stopped = false;         ///< before all that was asked for was there
};
/// Every product of axes for so many ranks, 1 to 32 patches for the stages of each, and experts
/// over ranks, synchronous and interweaved. `progress` hears what was done: "foretold" or
/// "measured", how many plans, of how many. After a stop request it returns what it has. Ranks that
/// are processes all call it, and all get the same plans. Throws Error(usage) for a model that
/// makes no images, and as Model::generate does.
PlanCosts compare_plans(
    const std::string& model, const RunOptions& options, const PlanCostsRequest& request,
    const std::function<void(const std::string& what, int done, int all)>& progress,
    const std::stop_token& stop = {});
/// One JSON object in one line.
std::string to_json(const PlanCost& cost);

}  // namespace tessera
