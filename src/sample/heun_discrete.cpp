#include "sample/scheduler.h"
#include "sample/sigma_steps.h"

namespace tessera::sample {
namespace {

// Steps to the next sigma along the derivative here. The start latent follows from the result and
// from the estimate, so the corrector needs no memory of its own.
LinearStep predictor(double sigma, double next, const FromPair& clean) {
  const double left = next / sigma;
  return {.from_x = clean.x, .from_out = clean.out, .x = left, .x0 = {1 - left}};
}

// Takes the same step along the mean of the derivatives at both ends.
LinearStep corrector(double sigma, double next, const FromPair& clean) {
  const double left = next / sigma, half_step = (next - sigma) / 2;
  const double start = 1 + half_step / sigma;  // factor of the latent at the predictor's start
  return {.from_x = clean.x,
          .from_out = clean.out,
          .x = start / left + half_step / next,
          .x0 = {-half_step / next, -start * (1 - left) / left - half_step / sigma}};
}

}  // namespace

std::unique_ptr<Sampler> heun_discrete(const base::ConfigReader& reader,
                                       const ScheduleRequest& request) {
  const PredictionType prediction = read_prediction(reader);
  const SigmaSteps path = sigma_steps(
      reader, request, {.schedule = {.start = 0.00085, .end = 0.012, .rescales = false}});
  std::vector<LinearStep> steps;
  const auto add = [&](LinearStep step, size_t seen_at) {
    step.timestep = path.times[seen_at];
    step.input_scale = SigmaSteps::input_scale(path.sigmas[seen_at]);
    step.before = {1, path.sigmas[seen_at]};
    steps.push_back(step);
  };
  for (size_t i = 0; i < path.times.size(); ++i) {
    const double sigma = path.sigmas[i], next = path.sigmas[i + 1];
    add(predictor(sigma, next, SigmaSteps::clean_of(prediction, sigma)), i);
    if (next > 0) add(corrector(sigma, next, SigmaSteps::clean_of(prediction, next)), i + 1);
  }
  Clip clip = read_clip(reader, false, request.tokens);
  clip.quantile = 0;  // this class of diffusers has no thresholding
  return std::make_unique<LinearSampler>(std::move(steps), path.initial_scale, clip);
}

}  // namespace tessera::sample
