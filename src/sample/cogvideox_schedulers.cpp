#include <cmath>

#include "base/fail.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {
namespace {

// The schedule of CogVideoX: computed in doubles, shifted towards noise, then ended in pure noise.
struct Schedule {
  NoiseSchedule noise;
  PredictionType prediction = PredictionType::epsilon;
  double last = 1;
  std::vector<int64_t> times;
  int stride = 1;

  double alpha(int64_t t) const { return noise.alpha(t, last); }
};

// Shifted, and with zero_snr ended in pure noise, in the precision T of the betas.
template <class T>
std::vector<double> shifted(const std::vector<T>& betas, T shift, bool zero_snr) {
  std::vector<T> alphas;
  double product = 1;
  for (const T b : betas) {
    product *= double(T(1) - b);
    const T a = T(product);
    alphas.push_back(a / (shift + (T(1) - shift) * a));
  }
  if (zero_snr) {
    const T first = std::sqrt(alphas.front()), end = std::sqrt(alphas.back());
    for (T& a : alphas) {
      const T root = (std::sqrt(a) - end) * (first / (first - end));
      a = root * root;
    }
  }
  return {alphas.begin(), alphas.end()};
}

std::vector<double> shifted_alphas(const base::ConfigReader& reader, int n) {
  const std::string kind = reader.choice("beta_schedule", "scaled_linear",
                                         {"linear", "scaled_linear", "squaredcos_cap_v2"});
  const double from = reader.fraction("beta_start", 0.00085),
               to = reader.fraction("beta_end", 0.012);
  const double shift = reader.positive("snr_shift_scale", 3);
  const bool zero_snr = reader.flag("rescale_betas_zero_snr", false);
  const std::vector<double> trained = reader.fractions("trained_betas");
  require(trained.empty() || trained.size() == static_cast<size_t>(n), ErrorCode::model,
          "{}: 'trained_betas' holds {} numbers for {} training steps", reader.where(),
          trained.size(), n);
  if (!trained.empty())
    return shifted(std::vector<float>(trained.begin(), trained.end()), float(shift), zero_snr);
  if (kind == "squaredcos_cap_v2") return shifted(cosine_betas(n), float(shift), zero_snr);
  if (kind == "linear") return shifted(linspace(from, to, n), shift, zero_snr);
  std::vector<double> betas = linspace(std::sqrt(from), std::sqrt(to), n);
  for (double& b : betas) b *= b;
  return shifted(betas, shift, zero_snr);
}

Schedule read_schedule(const base::ConfigReader& reader, const ScheduleRequest& request) {
  // diffusers keeps clip_sample and clip_sample_range in these two classes and reads neither.
  Schedule s;
  s.noise.train_steps = static_cast<int>(reader.integer("num_train_timesteps", 1000, 2, 1000000));
  s.noise.alphas_cumprod = shifted_alphas(reader, s.noise.train_steps);
  s.prediction = read_prediction(reader);
  s.last = reader.flag("set_alpha_to_one", true) ? 1 : s.noise.alphas_cumprod.front();
  const std::string spacing =
      reader.choice("timestep_spacing", "leading", {"linspace", "leading", "trailing"});
  s.times = spaced_timesteps(spacing, s.noise.train_steps, request.steps,
                             reader.integer("steps_offset", 0, 0, 1000));
  s.stride = s.noise.train_steps / request.steps;
  return s;
}

double half_log_snr(double a) { return 0.5 * std::log(a / (1 - a)); }

}  // namespace

std::unique_ptr<Sampler> cogvideox_ddim(const base::ConfigReader& reader,
                                        const ScheduleRequest& request) {
  const Schedule s = read_schedule(reader, request);
  std::vector<LinearStep> steps;
  for (int64_t t : s.times) {
    const double a = s.alpha(t), next = s.alpha(t - s.stride);
    const FromPair clean = clean_of(s.prediction, std::sqrt(a), std::sqrt(1 - a));
    const double keep = std::sqrt((1 - next) / (1 - a));
    steps.push_back({.timestep = double(t),
                     .from_x = clean.x,
                     .from_out = clean.out,
                     .x = keep,
                     .x0 = {std::sqrt(next) - std::sqrt(a) * keep}});
  }
  return std::make_unique<LinearSampler>(std::move(steps));
}

std::unique_ptr<Sampler> cogvideox_dpm(const base::ConfigReader& reader,
                                       const ScheduleRequest& request) {
  const Schedule s = read_schedule(reader, request);
  std::vector<LinearStep> steps;
  for (size_t i = 0; i < s.times.size(); ++i) {
    const int64_t t = s.times[i], before = t - s.stride;
    const double a = s.alpha(t), next = s.alpha(before);
    const FromPair clean = clean_of(s.prediction, std::sqrt(a), std::sqrt(1 - a));
    const double h = half_log_snr(next) - half_log_snr(a);
    const double toward = -std::expm1(-2 * h) * std::sqrt(next);
    LinearStep step{.timestep = double(t),
                    .from_x = clean.x,
                    .from_out = clean.out,
                    .x = std::sqrt((1 - next) / (1 - a)) * std::exp(-h),
                    .x0 = {toward},
                    .noise = std::sqrt((1 - next) * -std::expm1(-2 * h)),
                    .draws = 1};
    if (i > 0 && before >= 0) {  // the reference also draws in a first-order step, in vain
      const double r = (half_log_snr(a) - half_log_snr(s.alpha(s.times[i - 1]))) / h;
      step.x0 = {toward * (1 + 1 / (2 * r)), -toward / (2 * r)};
      step.draws = 2;
    }
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps));
}

}  // namespace tessera::sample
