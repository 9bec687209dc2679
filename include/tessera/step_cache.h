#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Rules that reuse results of earlier steps: first-block cache (ParaAttention), DBCache
/// (cache-dit), TaylorSeer (Liu et al. 2025, arXiv 2503.06923), MagCache (Ma et al. 2025, arXiv
/// 2506.09045), TeaCache (Liu et al. 2024, arXiv 2411.19108), and drift (ours): predictions are
/// extrapolated over the timesteps while the error measured in this run stays small.
enum class StepCacheRule : uint8_t { fbcache, dbcache, taylorseer, magcache, teacache, drift };

/// A rule and its numbers; docs/guides/step_caching.md explains each. A step is a forward pass of
/// the network.
struct StepCache {
  StepCacheRule rule = StepCacheRule::fbcache;
  /// The branches of guidance decide each for itself (cache-dit: separate_cfg), by passes of their
  /// own; false: one decision and pass for both.
  bool apart = false;
  double threshold = 0;       ///< the rule's limit; parse_step_cache knows the defaults
  int first_blocks = 1;       ///< dbcache Fn: blocks that always run, before the decision
  int last_blocks = 0;        ///< dbcache Bn: blocks that always run, behind the reused ones
  int warmup = 3;             ///< dbcache: first steps that are computed,
  int warmup_interval = 1;    ///< dbcache: every n-th of these, others may be reused
  int max_cached = -1;        ///< dbcache: reused steps of a run; -1: any number
  int max_continuous = -1;    ///< dbcache: reused steps in a row; -1: any number
  int taylor = 0;             ///< dbcache: order of the residual's extrapolation; 0: none
  std::vector<bool> mask{};   ///< dbcache: a step that is true is computed; empty: none
  bool mask_decides = false;  ///< dbcache: a step that is false in the mask is reused
  int order = 1;              ///< taylorseer: the highest derivative
  int interval = 3;           ///< taylorseer: every n-th step is computed
  int before = 4;             ///< taylorseer: earlier steps are computed
  int after = -1;             ///< taylorseer: from this step on all are computed; -1: none
  bool lite = false;          ///< taylorseer: predictions are extrapolated, not attention results
  int max_skip = 3;           ///< magcache, drift: reused steps in a row
  double retention = 0.2;     ///< magcache: share of the steps computed at the start
  std::vector<double> ratios{};        ///< magcache: quotients of residual norms
  std::vector<double> coefficients{};  ///< teacache: a polynomial, highest power first
  bool operator==(const StepCache&) const = default;
};

/// Reads "dbcache,threshold=0.1,Fn=2". Throws Error(usage) with the rule's keys.
StepCache parse_step_cache(const std::string& text);
/// The same in words of parse_step_cache; every number that the rule reads.
std::string to_string(const StepCache& cache);
/// Throws Error(usage) for a number outside its bounds.
void check_values(const StepCache& cache);

}  // namespace tessera
