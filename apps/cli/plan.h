#pragma once

#include "commands.h"

namespace tessera::cli {

/// "plan": what plans over ranks would take.
Command add_plan(CLI::App& program);

/// The word that stands for a plan that is chosen.
inline constexpr const char* kAutoPlan = "auto";
/// Puts in the place of --plan auto the exact plan for --ranks that is predicted to be
/// fastest on this machine, and says it on standard error. Throws Error(usage) under mpirun.
void choose_auto_plan(ModelOptions& options, const GenerateRequest& request,
                      const Processes* processes, const std::stop_token& stop);

}  // namespace tessera::cli
