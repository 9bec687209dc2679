#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "planner/published_case.h"

namespace tessera::planner {

/// A published number beside its prediction. `error`: (predicted - measured) / measured; of what
/// only runs or does not, and of plans that a source calls best, 0 where both agree, else 1.
struct Scored {
  enum class Kind { latency, ratio, rank, other };
  Kind kind = Kind::other;
  std::optional<double> predicted, measured;  ///< none: it does not fit into memory
  double error = 0;
};
/// Throws Error with the reason why a row is not predicted.
Scored scored(PublishedRuns& runs, const base::Json& row);

/// A statement that one run takes more than another.
struct Ordered {
  bool right = false;
  double left = 0, right_side = 0;
};
Ordered ordered(PublishedRuns& runs, const base::Json& row);

}  // namespace tessera::planner
