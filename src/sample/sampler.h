#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::sample {

using tensor::Tensor;

/// Memory of multi-step samplers for some tokens, newest last; belongs to the owner of the tokens.
struct History {
  std::vector<Tensor> outputs;
};

/// The steps from noise to a latent, a forward pass each; a solver with two evaluations per step
/// has two steps. Const and element-wise unless whole_samples() is true: any range of tokens can
/// step alone.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int steps() const = 0;
  /// The denoiser's timestep at step i.
  virtual float timestep(int i) const = 0;
  /// The timestep of noise alone.
  virtual float last_timestep() const { return 1000; }
  /// Whether step i reads noise of the latent's shape.
  virtual bool needs_noise(int i) const = 0;
  /// How often the reference implementation draws noise for step i; the last draw is read.
  virtual int noise_draws(int i) const { return needs_noise(i) ? 1 : 0; }
  /// The factor of unit noise before the first step.
  virtual float initial_scale() const { return 1; }
  /// Whether a step reads whole samples; else it is element-wise.
  virtual bool whole_samples() const { return false; }
  /// A noisy latent: signal * clean + noise * unit noise.
  struct Noised {
    double signal = 0, noise = 0;
  };
  /// Shares of image and noise in the latent before step i; {1, 0} after the last step, {0, 0} if
  /// the schedule does not define them.
  virtual Noised noised(int) const { return {}; }
  /// The factor of the denoiser's input at step i.
  virtual float input_scale(int) const { return 1; }
  /// x f32 [tokens, C * patch], prediction f32 [tokens, C' * patch] after guidance, noise like x or
  /// undefined -> the latent after step i. All tensors are on the same device; their computation
  /// may be pending.
  virtual Tensor step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
                      History& history) const = 0;
};

/// Pulls guided predictions back towards the deviation of the conditional predictions (Lin et al.
/// 2023, section 3.4): over the first `columns` columns of each sample (`tokens` rows), guided *
/// (phi * std(cond) / std(guided) + 1 - phi). Both are f32 [samples * tokens, n]; the other columns
/// stay. The deviation is computed on the host, after waiting for a GPU.
Tensor rescale_guided(const Tensor& guided, const Tensor& cond, float phi, int64_t tokens,
                      int64_t columns);

/// Shortens guided predictions: the norm of a sample (`tokens` rows) is at most `limit` times the
/// norm of its conditional prediction. Both are f32 [samples * tokens, n]. The norms are computed
/// on the host, after waiting for a GPU.
Tensor limit_guided(const Tensor& guided, const Tensor& cond, float limit, int64_t tokens);

/// Rectified flow (Liu et al. 2022) by Euler steps: t = i/S for i = S .. 1, z <- z - v/S. Only the
/// first columns of the prediction, as many as x has, are read.
std::unique_ptr<Sampler> rectified_flow(int steps);

/// DDPM (Ho et al. 2020) with learned-range variance (Nichol & Dhariwal 2021, section 3.1) on
/// respaced linear betas 1e-4 .. 0.02 over 1000 steps: prediction [tokens, 2 * C * patch] is
/// [eps | sigma]. x0 is not clipped. steps in 1..1000.
std::unique_ptr<Sampler> ddpm_learned_range(int steps);

}  // namespace tessera::sample
