#pragma once

#include "parallel/reuse/step_reuse.h"
#include "parallel/reuse/taylor.h"
#include "tessera/step_cache.h"

namespace tessera::parallel {

/// Reuses the difference that the blocks after the front blocks added to the hidden states: h +
/// (h_out - h_in) of the last computed step.
class ResidualReuse : public StepReuse {
 public:
  void blocks(const Pass& pass) final;

 protected:
  /// `front`, `back`: blocks that run in every step, before the decision and behind the reused
  /// ones. `order`: of the residual's extrapolation.
  ResidualReuse(Run run, int front, int back, int order = 0);
  /// True to reuse: `in` are the hidden states before the front blocks.
  virtual bool reuses(const Pass& pass, const nn::Joint& in) = 0;
  bool has_result() const { return body_.defined(); }
  /// The tokens of a stream or a difference that changes are measured on.
  nn::Joint measured(const nn::Joint& tokens) const;

 private:
  int front_, back_;
  Taylor body_, prefix_;
};

/// First-block cache (ParaAttention; as in diffusers): reuses blocks while the first block's change
/// differs little from its change in the last computed step.
class FirstBlockReuse : public ResidualReuse {
 public:
  FirstBlockReuse(const StepCache& cache, Run run);

 protected:
  FirstBlockReuse(const StepCache& cache, Run run, int front, int back, int order);
  bool reuses(const Pass& pass, const nn::Joint& in) final;
  /// True to reuse; both are results of the front blocks.
  virtual bool hits(const nn::Joint& residual, const nn::Joint& before);
  const StepCache cache_;

 private:
  nn::Joint residual_;  // by the front blocks, in the last computed step
};

/// The steps of DBCache's warm-up, shortened by its mask.
int fixed_warmup(const StepCache& cache);

/// DBCache (cache-dit): the same over several first blocks, with warm-up, limits and masks.
class DualBlockReuse final : public FirstBlockReuse {
 public:
  DualBlockReuse(const StepCache& cache, Run run);

 private:
  bool hits(const nn::Joint& residual, const nn::Joint& before) override;
  bool decides(const nn::Joint& residual, const nn::Joint& before);
  int warmup_;
  int reused_ = 0, in_a_row_ = 0;
};

/// MagCache's decision: no data take part.
class MagnitudeRule {
 public:
  explicit MagnitudeRule(const StepCache& cache) : cache_(cache) {}
  /// Whether a step is reused; `has_result`: an earlier step was computed. One call for each step.
  bool reuses(int step, int steps, bool has_result);
  /// The number behind the last decision; NaN: none.
  double error() const { return decision_; }

 private:
  double ratio(int step, int steps) const;
  const StepCache cache_;
  double product_ = 1, error_ = 0, decision_ = 0;
  int count_ = 0;
};

/// MagCache (Ma et al. 2025): reuses while known ratios of residual norms, multiplied, stay near 1.
class MagnitudeReuse final : public ResidualReuse {
 public:
  MagnitudeReuse(const StepCache& cache, Run run);

 private:
  bool reuses(const Pass& pass, const nn::Joint& in) override;
  MagnitudeRule rule_;
};

/// TeaCache (Liu et al. 2024): reuses while a polynomial of the changes of the first block's
/// modulated input, summed, stays below the threshold. The first and last step are computed.
class ModulatedReuse final : public ResidualReuse {
 public:
  ModulatedReuse(const StepCache& cache, Run run);

 private:
  bool reuses(const Pass& pass, const nn::Joint& in) override;
  const StepCache cache_;
  tensor::Tensor input_;  // the last step's
  double sum_ = 0;
};

}  // namespace tessera::parallel
