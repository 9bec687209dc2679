#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "sample/scheduler_settings.h"

namespace tessera::sample {

constexpr int kWalkNumbers = 12, kWalkSamples = 2;

/// The starting latent, the bias of a pass, or the noise of a pass: the formula of
/// tools/make_scheduler_golden.py.
inline std::vector<float> walk_numbers(int run) {
  std::vector<float> result;
  for (int i = 0; i < kWalkNumbers; ++i)
    result.push_back(static_cast<float>(std::sin(12.9 * (i + 1) + 7.3 * run)));
  return result;
}

inline Tensor walk_latent(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values),
                      {2 * kWalkSamples, kWalkNumbers / 2 / kWalkSamples});
}

inline Tensor walk_prediction(const Sampler& sampler, int i, const Tensor& x) {
  const std::vector<float> bias = walk_numbers(1 + i), values = x.to_floats();
  std::vector<float> out;
  for (size_t j = 0; j < values.size(); ++j)
    out.push_back(std::tanh(values[j] * sampler.input_scale(i)) * 0.8f + 0.3f * bias[j]);
  return walk_latent(out);
}

/// The latents of two images after every pass, as the `walk` of tools/make_scheduler_golden.py.
inline std::vector<std::vector<float>> walk_latents(const Sampler& sampler) {
  std::vector<float> start = walk_numbers(0);
  for (float& v : start) v *= 1.5f * sampler.initial_scale();
  Tensor x = walk_latent(start);
  History history;
  std::vector<std::vector<float>> latents;
  for (int i = 0; i < sampler.steps(); ++i) {
    const Tensor noise = sampler.needs_noise(i) ? walk_latent(walk_numbers(100 + i)) : Tensor();
    x = sampler.step(i, walk_prediction(sampler, i, x), x, noise, history);
    latents.push_back(x.to_floats());
  }
  return latents;
}

}  // namespace tessera::sample
