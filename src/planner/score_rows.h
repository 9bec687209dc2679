#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "planner/published_case.h"

namespace tessera::planner {

/// A published number and its prediction. `error`: (predicted - measured) / measured. For facts
/// without a number (runs or not, the best plan) 0 if both agree, else 1.
struct Scored {
  enum class Kind { latency, ratio, rank, other };
  Kind kind = Kind::other;
  std::optional<double> predicted, measured;  ///< none: does not fit into memory
  double error = 0;
};
/// Throws Error with the reason if a row cannot be predicted.
Scored scored(PublishedRuns& runs, const base::Json& row);

/// A statement of the order of two runs' costs.
struct Ordered {
  bool right = false;
  double left = 0, right_side = 0;
};
Ordered ordered(PublishedRuns& runs, const base::Json& row);

}  // namespace tessera::planner
