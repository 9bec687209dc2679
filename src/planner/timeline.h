#pragma once

#include <string>

#include "planner/simulate.h"

namespace tessera::planner {

/// A simulation with spans in Chrome's trace format: a lane for what each rank does, and one for
/// the messages that it sends.
std::string trace_of(const Simulation& run);
/// The same as an SVG image: a lane a rank, computing dark, waits light, messages as a line
/// below.
std::string image_of(const Simulation& run);

}  // namespace tessera::planner
