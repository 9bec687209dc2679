#pragma once

#include <string>

#include "planner/simulate.h"

namespace tessera::planner {

/// A process of a trace, so that both can stand in one.
enum class TimelineOf { prediction, measurement };
/// A simulation with spans in Chrome's trace format: a lane for what each rank does, one for the
/// messages that it sends, and one for each link that moves bytes.
std::string trace_of(const Simulation& run, TimelineOf of = TimelineOf::prediction);
/// The same as an SVG image: a lane a rank, computing dark, waits light, messages as a line
/// below; then a lane a link.
std::string image_of(const Simulation& run);

}  // namespace tessera::planner
