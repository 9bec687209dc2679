#pragma once

#include <memory>
#include <optional>

#include "parallel/reuse/step_reuse.h"
#include "tessera/step_cache.h"

namespace tessera::parallel {

/// Throws Error(usage) for numbers that do not fit the model's blocks or the count of steps.
void check_step_cache(const StepCache& cache, const nn::Geometry& geometry, int steps);
/// The share of a run's blocks that a rule computes, where it decides without looking at data:
/// MagCache, DBCache with a static policy, TaylorSeer lite. None: the data decide, or parts of
/// blocks are reused.
std::optional<double> computed_share(const StepCache& cache, int blocks, int steps);
/// Throws Error(usage) as check_step_cache.
std::unique_ptr<StepReuse> make_step_reuse(const StepCache& cache, StepReuse::Run run);

}  // namespace tessera::parallel
