#pragma once

#include "parallel/reuse/step_reuse.h"
#include "parallel/reuse/taylor.h"
#include "tessera/step_cache.h"

namespace tessera::parallel {

/// Reuses predictions of the network; nothing of it runs in a reused step.
class PredictionReuse : public StepReuse {
 public:
  using StepReuse::StepReuse;
  tensor::Tensor predicted() final;
  void keep(const tensor::Tensor& prediction) final;

 protected:
  /// The prediction for this step, undefined to compute it.
  virtual tensor::Tensor predict() = 0;
  virtual void learn(const tensor::Tensor& prediction) = 0;

 private:
  double begun_ = 0, cost_ = 0;  // FLOPs before a computed pass, and of the pass
};

/// TaylorSeer's lite mode: the output of the last layer is extrapolated (as in diffusers).
class TaylorPrediction final : public PredictionReuse {
 public:
  TaylorPrediction(const StepCache& cache, Run run)
      : PredictionReuse(std::move(run)), cache_(cache), taylor_(cache.order) {}

 private:
  tensor::Tensor predict() override;
  void learn(const tensor::Tensor& prediction) override { taylor_.update(prediction, step()); }
  const StepCache cache_;
  Taylor taylor_;
};

/// Ours: predictions are extrapolated along a line over the timesteps. In a computed step the line
/// through the two before is compared with the new prediction, which gives the curvature; a step is
/// reused while the expected errors, weighted by the lengths of the steps, sum up to less than the
/// threshold. No calibration, and no block runs for the decision.
class DriftReuse final : public PredictionReuse {
 public:
  DriftReuse(const StepCache& cache, Run run) : PredictionReuse(std::move(run)), cache_(cache) {}

 private:
  struct Node {
    double time = 0;
    tensor::Tensor value;
  };
  tensor::Tensor predict() override;
  void learn(const tensor::Tensor& prediction) override;
  tensor::Tensor line(double time) const;
  double time(int step) const { return run_.timesteps.at(static_cast<size_t>(step)); }
  /// The length of a step; the mean of all is 1.
  double length(int step) const;

  const StepCache cache_;
  std::vector<Node> nodes_;  // the last two computed steps, newest last
  double curvature_ = -1;    // error of the line, divided by its distances; below 0: not known
  double sum_ = 0;
  int reused_ = 0;  // in a row
};

}  // namespace tessera::parallel
