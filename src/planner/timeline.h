#pragma once

#include <string>

#include "planner/simulate.h"

namespace tessera::planner {

/// A trace may hold a prediction and a measurement, as two processes.
enum class TimelineOf { prediction, measurement };
/// Returns a simulation with spans in Chrome's trace format: a rank has a lane for computation and
/// waits and a lane for sent messages, and each link that moves bytes has a lane.
std::string trace_of(const Simulation& run, TimelineOf of = TimelineOf::prediction);
/// Draws a simulation as an SVG image: each rank has a lane with dark computation, light waits and
/// messages as a line below; each link has a lane below the ranks.
std::string image_of(const Simulation& run);

}  // namespace tessera::planner
