#pragma once

#include <string>

#include "planner/simulate.h"

namespace tessera::planner {

/// A simulation with spans in Chrome's trace format: a lane for each rank's work, and a lane for
/// the messages from the rank.
std::string trace_of(const Simulation& run);
/// The timeline as an SVG image: a lane for each rank, dark for computing, light for waiting, with
/// messages as a line below.
std::string image_of(const Simulation& run);

}  // namespace tessera::planner
