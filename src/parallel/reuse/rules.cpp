#include "parallel/reuse/rules.h"

#include "base/fail.h"
#include "parallel/reuse/attention_reuse.h"
#include "parallel/reuse/prediction_reuse.h"
#include "parallel/reuse/residual_reuse.h"

namespace tessera::parallel {

void check_step_cache(const StepCache& cache, const nn::Geometry& geometry, int steps) {
  check_values(cache);
  if (cache.rule != StepCacheRule::dbcache) return;
  require(cache.first_blocks + cache.last_blocks <= geometry.blocks, ErrorCode::usage,
          "`cache` dbcache,Fn={},Bn={}: the model has {} blocks; choose fewer", cache.first_blocks,
          cache.last_blocks, geometry.blocks);
  for (int b = geometry.blocks - cache.last_blocks; b < geometry.blocks; ++b) {
    const int from =
        geometry.skip_from.empty() ? -1 : geometry.skip_from.at(static_cast<size_t>(b));
    require(from < cache.first_blocks, ErrorCode::usage,
            "`cache` dbcache,Bn={}: block {} reads block {}, which a reused step leaves out; use "
            "Bn=0",
            cache.last_blocks, b, from);
  }
  require(cache.mask.empty() || std::ssize(cache.mask) == steps, ErrorCode::usage,
          "`cache` dbcache,mask=: {} digits for {} steps; give one for each", cache.mask.size(),
          steps);
}

std::optional<double> computed_share(const StepCache& cache, int blocks, int steps) {
  if (blocks < 1 || steps < 1) return {};
  MagnitudeRule magnitude(cache);
  const int warmup = fixed_warmup(cache);
  double computed = 0;
  for (int i = 0; i < steps; ++i) {
    bool is_reused = false;
    double blocks_run = 0;  // blocks run in a reused step
    if (cache.rule == StepCacheRule::magcache) {
      is_reused = magnitude.reuses(i, steps, i > 0);
    } else if (cache.rule == StepCacheRule::taylorseer && cache.lite) {
      is_reused = !taylor_computes(cache, i);
    } else if (cache.rule == StepCacheRule::dbcache && cache.mask_decides) {
      const bool warm = i < warmup && i % cache.warmup_interval == 0;
      is_reused = i > 0 && !warm && !cache.mask.at(static_cast<size_t>(i));
      blocks_run = cache.first_blocks + cache.last_blocks;
    } else {
      return {};
    }
    computed += is_reused ? blocks_run / blocks : 1;
  }
  return computed / steps;
}

std::unique_ptr<StepReuse> make_step_reuse(const StepCache& cache, StepReuse::Run run) {
  // A dry run has fewer steps.
  if (!run.meta) check_step_cache(cache, run.geometry, static_cast<int>(run.timesteps.size()));
  switch (cache.rule) {
    case StepCacheRule::fbcache: return std::make_unique<FirstBlockReuse>(cache, std::move(run));
    case StepCacheRule::dbcache: return std::make_unique<DualBlockReuse>(cache, std::move(run));
    case StepCacheRule::magcache: return std::make_unique<MagnitudeReuse>(cache, std::move(run));
    case StepCacheRule::teacache: return std::make_unique<ModulatedReuse>(cache, std::move(run));
    case StepCacheRule::drift: return std::make_unique<DriftReuse>(cache, std::move(run));
    case StepCacheRule::taylorseer: break;
  }
  if (cache.lite) return std::make_unique<TaylorPrediction>(cache, std::move(run));
  return std::make_unique<AttentionReuse>(cache, std::move(run));
}

}  // namespace tessera::parallel
