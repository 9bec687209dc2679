#pragma once

#include "commands.h"

namespace tessera::cli {

/// Adds "plan": predicts the cost of plans over ranks.
Command add_plan(CLI::App& program);

/// Placeholder for an automatically chosen plan.
inline constexpr const char* kAutoPlan = "auto";
/// Replaces --plan auto by the exact plan for --ranks with the best predicted time on this machine,
/// and returns a note about the plan. Throws Error(usage) under mpirun.
std::string choose_auto_plan(ModelOptions& options, const GenerateRequest& request,
                             const Processes* processes, const std::stop_token& stop);

}  // namespace tessera::cli
