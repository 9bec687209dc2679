#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "nn/block_stack.h"
#include "parallel/setup.h"
#include "sample/sampler.h"

namespace tessera::parallel {

/// Guidance of a request. Sequences are [conditional samples, unconditional samples] when scale
/// != 1, over all ranks of cfg=2.
struct Guidance {
  float scale = 1;
  int64_t channels = 0;  ///< latent channels that are guided; the others are the conditional ones
  int64_t kept = 0;      ///< latent channels of a prediction that the sampler gets; 0: all
  float rescale = 0;     ///< towards the conditional spread; needs whole samples on a rank
  bool branches() const { return scale != 1; }
};

/// What a caller may watch and stop.
struct DenoiseControl {
  std::stop_token stop;
  /// Before each step. What it gets gives, for the time of the call, the latent of all ranks in the
  /// order of the request, on the host; others take no part in the call and join in by themselves.
  std::function<void(int step, int count, const std::function<tensor::Tensor()>& latent)> on_step;
  /// Before each step, on every rank, ahead of on_step.
  std::function<void(int step)> on_rank_step;
  /// Gets tensors in token layout, on the host.
  std::function<void(const std::string& name, const tensor::Tensor&)> trace;
};

/// The one loop: steps over the model's blocks, under any plan. Tensors are this rank's: `latent`
/// f32 [tokens that the rank holds, C * patch] starts as noise, noise(i) gives step i's noise in
/// the same layout, `conditioning` is of the rank's sequences (guidance branches counted). The
/// latent lives on setup.residence.device and comes back to where it was given; noise and
/// conditioning may be on the host. A step begins when the one before it is computed. Rank 0 alone
/// calls on_step. Throws Error(cancelled) within a step of a stop request to rank 0, on all ranks;
/// another rank that has a control.stop heeds it before a block, as a failure of that rank.
tensor::Tensor denoise(const nn::Denoiser& model, const nn::Conditioning& conditioning,
                       const sample::Sampler& sampler, const Guidance& guidance,
                       tensor::Tensor latent, const std::function<tensor::Tensor(int step)>& noise,
                       Setup& setup, const DenoiseControl& control);

/// Rows of all ranks of a stage (-1: of the last one) at rank 0, in the order of the request;
/// undefined elsewhere.
tensor::Tensor gathered(const Setup& setup, const tensor::Tensor& mine, Rows rows = Rows::latent,
                        int stage = -1);

/// One forward pass of the model at given timesteps f32 [batch], of all tokens: prediction f32
/// [tokens, C' * patch], of stages the last one's, without rows elsewhere. trace gets what the
/// rank's stage has of "embedding", "block.N" and "block.N.context" (the streams after block N).
tensor::Tensor forward(const nn::Denoiser& model, const nn::Conditioning& conditioning,
                       const tensor::Tensor& timestep, const tensor::Tensor& latent, Setup& setup,
                       const DenoiseControl& control);

}  // namespace tessera::parallel
