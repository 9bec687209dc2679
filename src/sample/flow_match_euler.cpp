#include <cmath>

#include "base/fail.h"
#include "sample/linear_sampler.h"
#include "sample/noise_schedule.h"
#include "sample/scheduler.h"
#include "sample/solver_path.h"

namespace tessera::sample {
namespace {

struct Shift {
  bool dynamic = false, linear = false;
  double constant = 1, mu = 0;

  // T is the precision of the reference: double from training's sigmas, else float.
  template <class T>
  T operator()(T s) const {
    if (!dynamic) return T(constant) * s / (T(1) + T(constant - 1) * s);
    const T top = T(linear ? mu : std::exp(mu));
    return top / (top + (T(1) / s - T(1)));
  }
};

Shift read_shift(const base::ConfigReader& reader, int64_t tokens) {
  Shift shift;
  shift.dynamic = reader.flag("use_dynamic_shifting", false);
  shift.constant = reader.positive("shift", 1);
  shift.linear =
      reader.choice("time_shift_type", "exponential", {"exponential", "linear"}) == "linear";
  shift.mu = read_size_shift(reader, tokens);
  return shift;
}

std::vector<double> shifted_sigmas(const base::ConfigReader& reader, const ScheduleRequest& request,
                                   int train_steps) {
  const Shift shift = read_shift(reader, request.tokens);
  std::vector<double> sigmas;
  if (!request.sigmas.empty() || !request.timesteps.empty()) {
    for (const double s : request.sigmas) sigmas.push_back(double(shift(float(s))));
    for (const double t : request.timesteps)
      sigmas.push_back(double(shift(float(t) / float(train_steps))));
    return sigmas;
  }
  if (request.even_sigmas) {
    const double last = 1 / double(request.steps);
    const auto even = linspace(1, last, request.steps);
    std::vector<float> values(even.begin(), even.end());
    if (request.float_sigmas) values = float_linspace(1, float(last), request.steps);
    for (const float s : values) sigmas.push_back(double(shift(s)));
    return sigmas;
  }
  // The ends of training are shifted by a constant already, and again below.
  const float count = float(train_steps);
  const float lowest = shift.dynamic ? 1.0f / count : shift(1.0f / count);
  const float highest = shift.dynamic ? 1.0f : shift(1.0f);
  for (double t :
       linspace(double(highest) * train_steps, double(lowest) * train_steps, request.steps))
    sigmas.push_back(shift(t / train_steps));
  return sigmas;
}

}  // namespace

std::unique_ptr<Sampler> flow_match_euler(const base::ConfigReader& reader,
                                          const ScheduleRequest& request) {
  const int train_steps = static_cast<int>(reader.integer("num_train_timesteps", 1000, 2, 1000000));
  const bool inverted = reader.flag("invert_sigmas", false);
  const bool stochastic = reader.flag("stochastic_sampling", false);
  check_steps(request.steps, 100000);
  std::vector<double> sigmas = shifted_sigmas(reader, request, train_steps);
  if (const double last = reader.number("shift_terminal", 0, 0, 0.999); last != 0) {
    const double scale = (1 - sigmas.back()) / (1 - last);
    require(scale > 0, ErrorCode::usage, "{} steps cannot end at 'shift_terminal' {}",
            request.steps, last);
    for (double& s : sigmas) s = 1 - (1 - s) / scale;
  }
  if (const Spread spread = read_sharded(reader); spread != Spread::even)
    sigmas = spread_sigmas(spread, sigmas.front(), sigmas.back(), request.steps);
  std::vector<float> path(sigmas.begin(), sigmas.end());
  if (inverted)
    for (float& s : path) s = 1 - s;
  std::vector<LinearStep> steps;
  path.push_back(inverted ? 1.0f : 0.0f);
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const bool from_request = !request.timesteps.empty() && !inverted;
    LinearStep step{.timestep = from_request ? double(float(request.timesteps[i]))
                                             : double(path[i] * float(train_steps)),
                    .before = {1 - double(path[i]), double(path[i])}};
    if (stochastic) {
      step.from_x = 1, step.from_out = -double(path[i]);
      step.x0[0] = 1 - double(path[i + 1]), step.noise = double(path[i + 1]), step.draws = 1;
    } else {
      step.x = 1, step.out = double(path[i + 1] - path[i]);
    }
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps));
}

}  // namespace tessera::sample
