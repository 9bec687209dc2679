#pragma once

#include <array>
#include <limits>
#include <vector>

#include "sample/sampler.h"

namespace tessera::sample {

/// A step of a solver that is linear in its inputs. The estimate of the clean latent is x0 = from_x
/// * x + from_out * prediction, clipped to [-clip, clip]. The next latent is x * latent + out *
/// prediction + x0[0] * estimate + x0[1] * previous estimate + ... + noise * noise.
struct LinearStep {
  double timestep = 0;
  double from_x = 0, from_out = 0;
  double x = 0, out = 0;
  std::array<double, 4> x0{};
  double noise = 0;
  int draws = 0;             ///< draws of noise in the reference implementation
  double input_scale = 1;    ///< scale of the denoiser's input
  Sampler::Noised before{};  ///< signal and noise in the latent
};

/// The clipping of estimates.
struct Clip {
  double bound = std::numeric_limits<double>::infinity();
  /// Dynamic thresholding (Saharia et al. 2022, section 2.3) in place of the bound, if above 0: a
  /// sample is clipped to this quantile of its absolute values, at least 1 and at most `most`, and
  /// divided by the quantile.
  double quantile = 0;
  double most = 1;
  int64_t tokens = 0;  ///< tokens of a sample
};

/// A sampler as a table of such steps: every published solver with constant coefficients.
class LinearSampler : public Sampler {
 public:
  explicit LinearSampler(std::vector<LinearStep> steps, double initial_scale = 1, Clip clip = {});

  int steps() const override { return static_cast<int>(steps_.size()); }
  float timestep(int i) const override { return static_cast<float>(at(i).timestep); }
  bool needs_noise(int i) const override { return at(i).draws > 0; }
  int noise_draws(int i) const override { return at(i).draws; }
  float initial_scale() const override { return static_cast<float>(initial_scale_); }
  float input_scale(int i) const override { return static_cast<float>(at(i).input_scale); }
  bool whole_samples() const override { return clip_.quantile > 0; }
  Noised noised(int i) const override { return i == steps() ? Noised{1, 0} : at(i).before; }
  Tensor step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
              History& history) const override;

 private:
  friend std::unique_ptr<Sampler> predicting_sampler(const Sampler& sampler);
  friend std::unique_ptr<Sampler> without_first(const Sampler& sampler, int count);
  const LinearStep& at(int i) const { return steps_.at(static_cast<size_t>(i)); }
  std::vector<LinearStep> steps_;
  double initial_scale_;
  Clip clip_;
  size_t memory_ = 0;  // earlier estimates that the steps read
};

/// The steps of a LinearSampler, each changed to return its estimate of the clean latent.
std::unique_ptr<Sampler> predicting_sampler(const Sampler& sampler);
/// The steps without the first `count`. Throws Error(usage) if a later step reads an estimate of a
/// removed step.
std::unique_ptr<Sampler> without_first(const Sampler& sampler, int count);

}  // namespace tessera::sample
