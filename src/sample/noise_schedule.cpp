#include "sample/noise_schedule.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sample/beta_quantile.h"

namespace tessera::sample {
namespace {

// As torch.linspace computes floats: from both ends towards the middle.
std::vector<float> float_linspace(float from, float to, int n) {
  std::vector<float> values(static_cast<size_t>(n));
  const float step = n > 1 ? (to - from) / static_cast<float>(n - 1) : 0;
  for (int i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = i < n / 2 ? std::fma(step, static_cast<float>(i), from)
                                               : std::fma(-step, static_cast<float>(n - i - 1), to);
  return values;
}

// Betas of an alpha bar that is a function of time: Nichol & Dhariwal's cosine, or exp(-12 t).
std::vector<float> betas_of_bar(int n, bool cosine) {
  auto bar = [&](double t) {
    if (!cosine) return std::exp(-12 * t);
    const double c = std::cos((t + 0.008) / 1.008 * M_PI / 2);
    return c * c;
  };
  std::vector<float> betas;
  for (int i = 0; i < n; ++i)
    betas.push_back(static_cast<float>(
        std::min(1 - bar(double(i + 1) / double(n)) / bar(double(i) / double(n)), 0.999)));
  return betas;
}

std::vector<float> read_betas(const base::ConfigReader& read, int n,
                              const ScheduleDefaults& missing) {
  const std::vector<double> trained = read.fractions("trained_betas");
  if (!trained.empty()) {
    require(trained.size() == static_cast<size_t>(n), ErrorCode::model,
            "{}: 'trained_betas' holds {} numbers for {} training steps", read.where(),
            trained.size(), n);
    return {trained.begin(), trained.end()};
  }
  const std::string kind = read.choice("beta_schedule", missing.kind,
                                       {"linear", "scaled_linear", "squaredcos_cap_v2", "exp"});
  const double from = read.fraction("beta_start", missing.start);
  const double to = read.fraction("beta_end", missing.end);
  if (kind == "squaredcos_cap_v2" || kind == "exp")
    return betas_of_bar(n, kind == "squaredcos_cap_v2");
  if (kind == "linear") return float_linspace(float(from), float(to), n);
  auto betas = float_linspace(float(std::sqrt(from)), float(std::sqrt(to)), n);
  for (float& b : betas) b *= b;
  return betas;
}

// Shifts and scales sqrt(alpha bar) so that the last is zero and the first stays.
void reach_zero_snr(std::vector<double>& alphas_cumprod) {
  const float first = std::sqrt(float(alphas_cumprod.front()));
  const float last = std::sqrt(float(alphas_cumprod.back()));
  for (double& a : alphas_cumprod) {
    const float root = (std::sqrt(float(a)) - last) * (first / (first - last));
    a = double(root * root);
  }
}

}  // namespace

std::vector<double> NoiseSchedule::sigmas() const {
  std::vector<double> result;
  for (double a : alphas_cumprod) result.push_back(double(std::sqrt((1.0f - float(a)) / float(a))));
  return result;
}

double NoiseSchedule::alpha(int64_t timestep, double final_alpha) const {
  return timestep < 0 ? final_alpha : alphas_cumprod.at(static_cast<size_t>(timestep));
}

NoiseSchedule read_noise_schedule(const base::ConfigReader& read, const ScheduleDefaults& missing) {
  NoiseSchedule schedule;
  schedule.train_steps = static_cast<int>(read.integer("num_train_timesteps", 1000, 2, 1000000));
  double product = 1;
  for (float beta : read_betas(read, schedule.train_steps, missing)) {
    product *= double(1.0f - beta);
    schedule.alphas_cumprod.push_back(double(float(product)));
  }
  require(schedule.alphas_cumprod.back() > 0, ErrorCode::model,
          "{}: the betas leave nothing of a sample after {} training steps; expected smaller ones",
          read.where(), schedule.train_steps);
  if (missing.rescales && read.flag("rescale_betas_zero_snr", false))
    reach_zero_snr(schedule.alphas_cumprod);
  return schedule;
}

std::vector<double> linspace(double from, double to, int n) {
  std::vector<double> values(static_cast<size_t>(n), from);
  const double step = n > 1 ? (to - from) / double(n - 1) : 0;
  for (int i = 0; i < n; ++i) values[static_cast<size_t>(i)] = double(i) * step + from;
  if (n > 1) values.back() = to;
  return values;
}

double rounded(double x) { return std::nearbyint(x); }

void check_steps(int steps, int most) {
  require(steps >= 1 && steps <= most, ErrorCode::usage,
          "{} steps were asked for; give a number from 1 to {}", steps, most);
}

std::vector<int64_t> spaced_timesteps(const std::string& spacing, int train_steps, int steps,
                                      int64_t offset) {
  check_steps(steps, train_steps);
  std::vector<int64_t> result;
  if (spacing == "linspace") {
    const auto even = linspace(0, train_steps - 1, steps);
    for (auto t = even.rbegin(); t != even.rend(); ++t)
      result.push_back(static_cast<int64_t>(rounded(*t)));
  } else if (spacing == "leading") {
    for (int i = steps - 1; i >= 0; --i) result.push_back(i * (train_steps / steps) + offset);
  } else {
    // numpy.arange adds a rounded difference.
    const double start = train_steps, ratio = start / double(steps),
                 delta = (start - ratio) - start;
    const int count = static_cast<int>(std::ceil(start / ratio));
    for (int i = 0; i < count; ++i)
      result.push_back(static_cast<int64_t>(rounded(start + double(i) * delta)) - 1);
  }
  for (int64_t& t : result) t = std::min<int64_t>(t, train_steps - 1);
  return result;
}

Spread read_spread(const base::ConfigReader& read) {
  Spread found = Spread::even;
  for (const auto& [key, spread] : {std::pair{"use_karras_sigmas", Spread::karras},
                                    {"use_exponential_sigmas", Spread::exponential},
                                    {"use_beta_sigmas", Spread::beta}}) {
    if (!read.flag(key, false)) continue;
    require(found == Spread::even, ErrorCode::model,
            "{}: '{}' is true beside another way to spread sigmas; expected one", read.where(),
            key);
    found = spread;
  }
  return found;
}

std::vector<double> spread_sigmas(Spread spread, double largest, double smallest, int n) {
  constexpr double kRho = 7, kBetaShape = 0.6;
  std::vector<double> sigmas = linspace(0, 1, n);
  if (spread == Spread::exponential) sigmas = linspace(std::log(largest), std::log(smallest), n);
  const double high = std::pow(largest, 1 / kRho), low = std::pow(smallest, 1 / kRho);
  for (double& s : sigmas)
    s = spread == Spread::karras ? std::pow(high + s * (low - high), kRho)
        : spread == Spread::exponential
            ? std::exp(s)
            : smallest + beta_quantile(1 - s, kBetaShape) * (largest - smallest);
  return sigmas;
}

double timestep_of_sigma(const std::vector<double>& sigmas, double sigma) {
  const auto log_of = [&](size_t i) { return double(float(std::log(sigmas[i]))); };
  const double wanted = std::log(std::max(sigma, 1e-10));
  size_t low = 0;
  while (low + 2 < sigmas.size() && log_of(low + 1) <= wanted) ++low;
  const double a = log_of(low), b = log_of(low + 1);
  const double w = std::clamp((a - wanted) / double(float(a) - float(b)), 0.0, 1.0);
  return (1 - w) * double(low) + w * double(low + 1);
}

double sigma_at(const std::vector<double>& sigmas, double timestep) {
  const double place = std::clamp(timestep, 0.0, double(sigmas.size() - 1));
  const size_t low = std::min(static_cast<size_t>(place), sigmas.size() - 2);
  return sigmas[low] + (sigmas[low + 1] - sigmas[low]) * (place - double(low));
}

}  // namespace tessera::sample
