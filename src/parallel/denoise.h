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
  int64_t channels = 0;             ///< guided latent channels; the others stay conditional
  int64_t prediction_channels = 0;  ///< latent channels of a prediction for the sampler; 0: all
  float rescale = 0;  ///< towards the conditional spread; needs whole samples on a rank
  float limit = 0;    ///< limit of a guided sample's length, relative to the conditional sample;
                      ///< needs whole samples on a rank; 0: no limit
  /// Steps whose time, 0 for noise and 1 for the sample, is below `from` or above `until` have no
  /// guidance.
  float from = 0, until = 1;
  bool negated = false;  ///< the sampler reads the negative of the network's prediction
  bool branches() const { return scale != 1; }
  bool measures_samples() const { return rescale != 0 || limit != 0; }
};

/// Callbacks and the stop of a caller.
struct DenoiseControl {
  std::stop_token stop;
  /// Before each step. The argument gives, during the call, the latent of all ranks in the order of
  /// the request, on the host; other ranks join without a call of their own.
  std::function<void(int step, int count, const std::function<tensor::Tensor()>& latent)> on_step;
  /// Before each step, on every rank, ahead of on_step.
  std::function<void(int step)> on_rank_step;
  /// Receives tensors in token layout, on the host.
  std::function<void(const std::string& name, const tensor::Tensor&)> trace;
};

/// The kept part of a latent in inpainting: after step i the latent is mask * latent + rest *
/// (clean with the noise level of step i + 1). All f32 like the latent, rest = 1 - mask.
struct KeptLatent {
  tensor::Tensor mask, rest, clean, noise;
};

/// The denoising loop: steps over the model's blocks, under any plan. Tensors are this rank's:
/// `latent` f32 [tokens of the rank, C * patch] starts as noise, noise(i) gives step i's noise in
/// the same layout, `conditioning` covers the rank's sequences (with guidance branches). The latent
/// lives on setup.residence.device and returns to its original device; noise and conditioning may
/// be on the host. A step begins after the previous one is computed. Rank 0 alone calls on_step.
/// Throws Error(cancelled) within a step of a stop request to rank 0, on all ranks; another rank
/// with a control.stop of its own checks before each block and fails alone.
tensor::Tensor denoise(const nn::Denoiser& model, const nn::Conditioning& conditioning,
                       const sample::Sampler& sampler, const Guidance& guidance,
                       tensor::Tensor latent, const std::function<tensor::Tensor(int step)>& noise,
                       Setup& setup, const DenoiseControl& control,
                       const KeptLatent* kept_latent = nullptr);

/// Rows of all ranks of a stage (-1: the last) at rank 0, in the order of the request; undefined
/// elsewhere.
tensor::Tensor gathered(const Setup& setup, const tensor::Tensor& own_rows,
                        Rows rows = Rows::latent, int stage = -1);

/// A forward pass at timesteps f32 [batch], for all tokens: prediction f32 [tokens, C' * patch] on
/// the last stage, without rows elsewhere. trace receives the stage's "embedding", "block.N" and
/// "block.N.context" (hidden states after block N).
tensor::Tensor forward(const nn::Denoiser& model, const nn::Conditioning& conditioning,
                       const tensor::Tensor& timestep, const tensor::Tensor& latent, Setup& setup,
                       const DenoiseControl& control);

}  // namespace tessera::parallel
