#include <cmath>

#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {

std::unique_ptr<Sampler> ddim(const base::ConfigReader& reader, const ScheduleRequest& request) {
  const NoiseSchedule schedule = read_noise_schedule(reader);
  const PredictionType prediction = read_prediction(reader);
  const Clip clip = read_clip(reader, true, request.tokens);
  const double last = reader.flag("set_alpha_to_one", true) ? 1 : schedule.alphas_cumprod.front();
  const std::string spacing =
      reader.choice("timestep_spacing", "leading", {"linspace", "leading", "trailing"});
  std::vector<LinearStep> steps;
  for (int64_t t : spaced_timesteps(spacing, schedule.train_steps, request.steps,
                                    reader.integer("steps_offset", 0, 0, 1000))) {
    const double a = schedule.alpha(t, last);
    const double next = schedule.alpha(t - schedule.train_steps / request.steps, last);
    const FromPair clean = clean_of(prediction, std::sqrt(a), std::sqrt(1 - a));
    const FromPair noise = noise_of(prediction, std::sqrt(a), std::sqrt(1 - a));
    const double direction = std::sqrt(1 - next);
    steps.push_back({.timestep = double(t),
                     .from_x = clean.x,
                     .from_out = clean.out,
                     .x = direction * noise.x,
                     .out = direction * noise.out,
                     .x0 = {std::sqrt(next)},
                     .before = {std::sqrt(a), std::sqrt(1 - a)}});
  }
  return std::make_unique<LinearSampler>(std::move(steps), 1, clip);
}

}  // namespace tessera::sample
