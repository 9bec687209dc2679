#include <cmath>

#include "base/fail.h"
#include "sample/scheduler.h"
#include "sample/sigma_steps.h"

namespace tessera::sample {
namespace {

// x moves from the estimate of the clean latent in proportion to sigma: from * x0 + (1 - from) * x.
LinearStep straight_step(const SigmaSteps& path, size_t i, PredictionType prediction, double to) {
  const double sigma = path.sigmas[i];
  const FromPair clean = SigmaSteps::clean_of(prediction, sigma);
  return {.timestep = path.times[i],
          .from_x = clean.x,
          .from_out = clean.out,
          .x = to / sigma,
          .x0 = {1 - to / sigma},
          .input_scale = SigmaSteps::input_scale(sigma),
          .before = {1, sigma}};
}

}  // namespace

std::unique_ptr<Sampler> euler_discrete(const base::ConfigReader& reader,
                                        const ScheduleRequest& request) {
  const PredictionType prediction = read_prediction(reader);
  if (prediction == PredictionType::velocity)  // other types get equal timesteps either way
    reader.choice("timestep_type", "discrete", {"discrete"});
  const SigmaSteps path = sigma_steps(reader, request, {.ends = true});
  std::vector<LinearStep> steps;
  for (size_t i = 0; i < path.times.size(); ++i)
    steps.push_back(straight_step(path, i, prediction, path.sigmas[i + 1]));
  return std::make_unique<LinearSampler>(std::move(steps), path.initial_scale);
}

std::unique_ptr<Sampler> euler_ancestral(const base::ConfigReader& reader,
                                         const ScheduleRequest& request) {
  const PredictionType prediction = read_prediction(reader);
  require(prediction != PredictionType::sample, ErrorCode::model,
          "{}: 'prediction_type' sample is not supported by this scheduler", reader.where());
  const SigmaSteps path = sigma_steps(reader, request, {.spreads = false});
  std::vector<LinearStep> steps;
  for (size_t i = 0; i < path.times.size(); ++i) {
    const double from = path.sigmas[i], to = path.sigmas[i + 1];
    const double up = std::sqrt(to * to * (from * from - to * to) / (from * from));
    LinearStep step = straight_step(path, i, prediction, std::sqrt(to * to - up * up));
    step.noise = up;
    step.draws = up > 0 ? 1 : 0;
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps), path.initial_scale);
}

}  // namespace tessera::sample
