#include <cmath>

#include "base/fail.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"
#include "sample/step_lists.h"

namespace tessera::sample {
namespace {

constexpr double kDataSpread = 0.5;

// Evenly spaced indices of the timesteps of distillation, latest first.
std::vector<int64_t> distilled_times(const base::ConfigReader& reader, int train_steps, int steps) {
  const auto distilled =
      static_cast<int>(reader.integer("original_inference_steps", 50, 1, train_steps));
  check_steps(steps, distilled);
  std::vector<int64_t> times;
  for (int i = 0; i < steps; ++i) {
    const auto index = static_cast<int64_t>(double(i) * (double(distilled) / double(steps)));
    times.push_back((distilled - index) * (train_steps / distilled) - 1);
  }
  return times;
}

}  // namespace

std::unique_ptr<Sampler> lcm(const base::ConfigReader& reader, const ScheduleRequest& request) {
  const NoiseSchedule schedule =
      read_noise_schedule(reader, {.kind = "scaled_linear", .start = 0.00085, .end = 0.012});
  const PredictionType prediction = read_prediction(reader);
  const double scaling = reader.positive("timestep_scaling", 10);
  std::vector<int64_t> times = whole_timesteps(request.timesteps, schedule.train_steps);
  if (times.empty()) times = distilled_times(reader, schedule.train_steps, request.steps);
  std::vector<LinearStep> steps;
  for (size_t i = 0; i < times.size(); ++i) {
    const double a = schedule.alpha(times[i], 1);
    const FromPair clean = clean_of(prediction, std::sqrt(a), std::sqrt(1 - a));
    // The boundary condition: at time zero the model is the identity.
    const double scaled = double(times[i]) * scaling;
    const double spread = scaled * scaled + kDataSpread * kDataSpread;
    const double skip = kDataSpread * kDataSpread / spread, out = scaled / std::sqrt(spread);
    const bool last = i + 1 == times.size();
    const double next = last ? 1 : schedule.alpha(times[i + 1], 1);
    steps.push_back({.timestep = double(times[i]),
                     .from_x = clean.x,
                     .from_out = clean.out,
                     .x = std::sqrt(next) * skip,
                     .x0 = {std::sqrt(next) * out},
                     .noise = last ? 0 : std::sqrt(1 - next),
                     .draws = last ? 0 : 1});
  }
  return std::make_unique<LinearSampler>(std::move(steps), 1,
                                         read_clip(reader, false, request.tokens));
}

}  // namespace tessera::sample
