#include "sample/sigma_steps.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::sample {
namespace {

std::vector<double> places(const base::ConfigReader& reader, const std::string& spacing,
                           int train_steps, int steps) {
  if (spacing == "trailing") {
    const auto whole = spaced_timesteps(spacing, train_steps, steps, 0);
    return {whole.begin(), whole.end()};
  }
  if (spacing == "leading") {  // an offset may exceed the last training timestep; its sigma stays
    check_steps(steps, train_steps);
    const int64_t offset = reader.integer("steps_offset", 0, 0, 1000);
    std::vector<double> whole;
    for (int i = steps - 1; i >= 0; --i)
      whole.push_back(double(i * (train_steps / steps) + offset));
    return whole;
  }
  check_steps(steps, 100000);
  const auto even = linspace(0, train_steps - 1, steps);
  std::vector<double> times;
  for (auto t = even.rbegin(); t != even.rend(); ++t) times.push_back(double(float(*t)));
  return times;
}

// Returns the requested sigmas, with timesteps interpolated between the training timesteps.
SigmaSteps listed_path(const std::vector<double>& sigmas, const std::vector<double>& all) {
  SigmaSteps path;
  path.sigmas = sigmas;
  const std::vector<float> logs = float_logs(all);
  for (size_t i = 0; i + 1 < sigmas.size(); ++i)
    path.times.push_back(timestep_of_sigma(logs, double(float(sigmas[i]))));
  return path;
}

std::vector<double> log_linear(const std::vector<float>& logs, int n) {
  std::vector<double> sigmas;
  for (const float log : float_linspace(logs.back(), logs.front(), n))
    sigmas.push_back(double(std::exp(log)));
  return sigmas;
}

SigmaSteps configured_path(const base::ConfigReader& reader, const ScheduleRequest& request,
                           const SigmaKeys& keys, const std::string& spacing,
                           const NoiseSchedule& schedule) {
  const std::vector<double> all = schedule.sigmas();
  SigmaSteps path;
  path.times = request.timesteps.empty()
                   ? places(reader, spacing, schedule.train_steps, request.steps)
                   : request.timesteps;
  for (double t : path.times) path.sigmas.push_back(sigma_at(all, t));
  // Sigmas are even in the logarithm; an added last sigma, the smallest, ends the last step.
  if (keys.ends &&
      reader.choice("interpolation_type", "linear", {"linear", "log_linear"}) != "linear")
    path.sigmas = log_linear(float_logs(all), request.steps + 1);
  if (const Spread spread = keys.spreads ? read_sharded(reader) : Spread::even;
      spread != Spread::even) {
    double high = path.sigmas.front(), low = path.sigmas.back();
    if (keys.ends) {
      high = reader.positive("sigma_max", high);
      low = reader.positive("sigma_min", low);
    }
    path.sigmas = spread_sigmas(spread, high, low, request.steps);
    const std::vector<float> logs = float_logs(all);
    for (size_t i = 0; i < path.times.size(); ++i)
      path.times[i] = timestep_of_sigma(logs, path.sigmas[i]);
  }
  const bool zero =
      !keys.ends || reader.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == "zero";
  path.sigmas.push_back(zero ? 0 : all.front());
  return path;
}

}  // namespace

double SigmaSteps::input_scale(double sigma) { return 1 / std::sqrt(sigma * sigma + 1); }

FromPair SigmaSteps::clean_of(PredictionType prediction, double sigma) {
  const double scale = input_scale(sigma);
  if (prediction == PredictionType::epsilon) return {1, -sigma};
  if (prediction == PredictionType::sample) return {0, 1};
  return {scale * scale, -sigma * scale};
}

SigmaSteps sigma_steps(const base::ConfigReader& reader, const ScheduleRequest& request,
                       const SigmaKeys& keys) {
  NoiseSchedule schedule = read_noise_schedule(reader, keys.schedule);
  // A last alpha of zero would be an infinite sigma.
  if (keys.schedule.rescales && reader.flag("rescale_betas_zero_snr", false))
    schedule.alphas_cumprod.back() = std::pow(2, -24);
  const std::string spacing =
      reader.choice("timestep_spacing", "linspace", {"linspace", "leading", "trailing"});
  SigmaSteps path = request.sigmas.empty()
                        ? configured_path(reader, request, keys, spacing, schedule)
                        : listed_path(request.sigmas, schedule.sigmas());
  for (double& s : path.sigmas) s = double(float(s));
  const double top = path.sigmas.front();
  path.initial_scale = spacing == "leading" ? std::sqrt(top * top + 1) : top;
  return path;
}

}  // namespace tessera::sample
