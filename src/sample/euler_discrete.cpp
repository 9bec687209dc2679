#include <cmath>

#include "base/fail.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {
namespace {

std::vector<double> places(const base::ConfigReader& read, const std::string& spacing,
                           int train_steps, int steps) {
  if (spacing != "linspace") {
    const auto whole =
        spaced_timesteps(spacing, train_steps, steps, read.integer("steps_offset", 0, 0, 1000));
    return {whole.begin(), whole.end()};
  }
  check_steps(steps, 100000);
  const auto even = linspace(0, train_steps - 1, steps);
  std::vector<double> times;
  for (auto t = even.rbegin(); t != even.rend(); ++t) times.push_back(double(float(*t)));
  return times;
}

}  // namespace

std::unique_ptr<Sampler> euler_discrete(const base::ConfigReader& read,
                                        const ScheduleRequest& request) {
  read.refuse("use_beta_sigmas", "a schedule by a beta distribution");
  read.choice("interpolation_type", "linear", {"linear"});
  read.choice("timestep_type", "discrete", {"discrete"});
  NoiseSchedule schedule = read_noise_schedule(read);
  // A last alpha of zero would be an infinite sigma.
  if (read.flag("rescale_betas_zero_snr", false)) schedule.alphas_cumprod.back() = std::pow(2, -24);
  const Prediction prediction = read_prediction(read);
  require(prediction != Prediction::sample, ErrorCode::model,
          "{}: 'prediction_type' sample is not supported by this scheduler", read.where());
  const std::string spacing =
      read.choice("timestep_spacing", "linspace", {"linspace", "leading", "trailing"});
  std::vector<double> times = places(read, spacing, schedule.train_steps, request.steps);
  const std::vector<double> all = schedule.sigmas();
  std::vector<double> sigmas;
  for (double t : times) sigmas.push_back(sigma_at(all, t));
  const bool karras = read.flag("use_karras_sigmas", false);
  if (karras || read.flag("use_exponential_sigmas", false)) {
    const double high = read.positive("sigma_max", sigmas.front());
    const double low = read.positive("sigma_min", sigmas.back());
    sigmas = karras ? karras_sigmas(high, low, request.steps)
                    : exponential_sigmas(high, low, request.steps);
    for (size_t i = 0; i < sigmas.size(); ++i) times[i] = timestep_of_sigma(all, sigmas[i]);
  }
  const bool zero = read.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == "zero";
  sigmas.push_back(zero ? 0 : all.front());
  std::vector<LinearStep> steps;
  for (size_t i = 0; i < times.size(); ++i) {
    // In these units x = clean + sigma * noise, and the denoiser sees x / sqrt(1 + sigma^2).
    const double sigma = double(float(sigmas[i])), next = double(float(sigmas[i + 1]));
    const double scale = 1 / std::sqrt(sigma * sigma + 1);
    const FromPair noise =
        prediction == Prediction::epsilon ? FromPair{0, 1} : FromPair{sigma * scale * scale, scale};
    steps.push_back({.timestep = times[i],
                     .x = 1 + (next - sigma) * noise.x,
                     .out = (next - sigma) * noise.out,
                     .input_scale = scale});
  }
  const double top = sigmas.front();
  return std::make_unique<LinearSampler>(std::move(steps),
                                         spacing == "leading" ? std::sqrt(top * top + 1) : top);
}

}  // namespace tessera::sample
