#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sample/scheduler.h"
#include "tessera/error.h"

namespace tessera::sample {

/// A sampler of `steps` steps from a configuration in JSON.
inline std::unique_ptr<Sampler> sampler_of(const char* name, const char* json, int steps,
                                           int64_t tokens = 0, bool even = false) {
  return make_sampler(name, base::Json::parse(json), "scheduler_config.json",
                      {steps, tokens, even});
}

inline std::vector<float> times_of(const Sampler& sampler) {
  std::vector<float> times;
  for (int i = 0; i < sampler.steps(); ++i) times.push_back(sampler.timestep(i));
  return times;
}

/// The error of a refused configuration.
inline std::string refusal(const char* name, const char* json, int steps = 4) {
  try {
    sampler_of(name, json, steps);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

/// Runs a denoiser with exact knowledge of the clean latent, in the scheduler's own prediction of
/// noise; returns the last latent. Every solver must end there.
inline Tensor walk(const Sampler& sampler, const Tensor& start,
                   const std::function<float(float x, int step)>& predict) {
  Tensor x = start, noise = Tensor::zeros(start.shape(), tensor::DType::f32);
  History history;
  for (int i = 0; i < sampler.steps(); ++i) {
    Tensor out = Tensor::empty(x.shape(), tensor::DType::f32);
    for (int64_t j = 0; j < x.elements(); ++j)
      out.data<float>()[j] = predict(x.data<float>()[j], i);
    x = sampler.step(i, out, x, noise, history);
  }
  return x;
}

}  // namespace tessera::sample
