#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"
#include "sample/step_lists.h"

namespace tessera::sample {

std::unique_ptr<Sampler> ddpm(const base::ConfigReader& reader, const ScheduleRequest& request) {
  const NoiseSchedule schedule = read_noise_schedule(reader);
  const PredictionType prediction = read_prediction(reader);
  const Clip clip = read_clip(reader, true, request.tokens);
  const bool large =
      reader.choice("variance_type", "fixed_small",
                    {"fixed_small", "fixed_small_log", "fixed_large"}) == "fixed_large";
  const std::string spacing =
      reader.choice("timestep_spacing", "leading", {"linspace", "leading", "trailing"});
  const int64_t offset = reader.integer("steps_offset", 0, 0, 1000);
  std::vector<int64_t> times = whole_timesteps(request.timesteps, schedule.train_steps);
  if (times.empty()) times = spaced_timesteps(spacing, schedule.train_steps, request.steps, offset);
  std::vector<LinearStep> steps;
  for (size_t i = 0; i < times.size(); ++i) {
    const double a = schedule.alpha(times[i], 1);
    const double next = i + 1 < times.size() ? schedule.alpha(times[i + 1], 1) : 1;
    const double alpha = a / next, beta = 1 - alpha;
    const FromPair clean = clean_of(prediction, std::sqrt(a), std::sqrt(1 - a));
    LinearStep step{.timestep = double(times[i]),
                    .from_x = clean.x,
                    .from_out = clean.out,
                    .x = std::sqrt(alpha) * (1 - next) / (1 - a),
                    .x0 = {std::sqrt(next) * beta / (1 - a)},
                    .before = {std::sqrt(a), std::sqrt(1 - a)}};
    if (times[i] > 0) {
      const double variance = std::max((1 - next) / (1 - a) * beta, 1e-20);
      step.noise = std::sqrt(large ? beta : variance);
      step.draws = 1;
    }
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps), 1, clip);
}

}  // namespace tessera::sample
