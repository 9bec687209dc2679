#pragma once

#include <string>
#include <vector>

#include "base/config_reader.h"
#include "sample/scheduler.h"

namespace tessera::sample {

/// The steps that lists of timesteps or sigmas are for a scheduler of this class; 0: both are
/// empty. Throws Error(usage) for both at once, and for a list that the class does not take.
int listed_steps(const std::string& class_name, const std::vector<double>& timesteps,
                 const std::vector<double>& sigmas);
/// Throws Error(usage) for lists that set_timesteps of diffusers does not take with this
/// configuration, or that do not descend from the largest number of the schedule.
void check_step_lists(const Scheduler& scheduler, const base::ConfigReader& reader,
                      const ScheduleRequest& request);
/// The timesteps as the whole numbers of training below `train_steps`; fractions are cut off.
/// Throws Error(usage) where they do not descend.
std::vector<int64_t> whole_timesteps(const std::vector<double>& timesteps, int train_steps);

}  // namespace tessera::sample
