#include "sample/noise_schedule.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sample/beta_quantile.h"

namespace tessera::sample {
namespace {

// Betas of an alpha bar as a function of time: Nichol & Dhariwal's cosine, or exp(-12 t).
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

std::vector<float> read_betas(const base::ConfigReader& reader, int n,
                              const ScheduleDefaults& missing) {
  const std::vector<double> trained = reader.fractions("trained_betas");
  if (!trained.empty()) {
    require(trained.size() == static_cast<size_t>(n), ErrorCode::model,
            "{}: 'trained_betas' holds {} numbers for {} training steps", reader.where(),
            trained.size(), n);
    return {trained.begin(), trained.end()};
  }
  const std::string kind =
      reader.choice("beta_schedule", missing.kind,
                    {"linear", "scaled_linear", "squaredcos_cap_v2", "exp", "sigmoid"});
  const double from = reader.fraction("beta_start", missing.start);
  const double to = reader.fraction("beta_end", missing.end);
  if (kind == "squaredcos_cap_v2" || kind == "exp")
    return betas_of_bar(n, kind == "squaredcos_cap_v2");
  if (kind == "linear") return float_linspace(float(from), float(to), n);
  if (kind == "sigmoid") {
    auto betas = float_linspace(-6, 6, n);
    for (float& b : betas) b = 1 / (1 + std::exp(-b)) * float(to - from) + float(from);
    return betas;
  }
  auto betas = float_linspace(float(std::sqrt(from)), float(std::sqrt(to)), n);
  for (float& b : betas) b *= b;
  return betas;
}

std::vector<double> cumulated(const std::vector<float>& betas) {
  std::vector<double> alphas;
  double product = 1;
  for (const float beta : betas) {
    product *= double(1.0f - beta);
    alphas.push_back(double(float(product)));
  }
  return alphas;
}

// Betas with zero terminal SNR: sqrt(alpha bar) is shifted and scaled to a last value of zero, and
// the first value stays.
std::vector<float> with_zero_snr(const std::vector<float>& betas) {
  std::vector<float> bar;
  for (const double a : cumulated(betas)) bar.push_back(std::sqrt(float(a)));
  const float first = bar.front(), last = bar.back(), scale = first / (first - last);
  for (float& root : bar) {
    const float scaled = (root - last) * scale;
    root = scaled * scaled;
  }
  std::vector<float> result{1.0f - bar.front()};
  for (size_t i = 1; i < bar.size(); ++i) result.push_back(1.0f - bar[i] / bar[i - 1]);
  return result;
}

// numpy's minimax quotient of polynomials, with fused products.
float numpy_log(float value) {
  constexpr float kOver[] = {0.0f,
                             9.999999999999998702752e-01f,
                             2.112677543073053063722e+00f,
                             1.480000633576506585156e+00f,
                             3.808837741388407920751e-01f,
                             2.589979117907922693523e-02f};
  constexpr float kUnder[] = {1.0f,
                              2.612677543073109236779e+00f,
                              2.453006071784736363091e+00f,
                              9.864942958519418960339e-01f,
                              1.546476374983906719538e-01f,
                              5.875095403124574342950e-03f};
  int exponent = 0;
  float x = std::frexp(value, &exponent);
  if (x <= float(M_SQRT1_2)) x += x, --exponent;
  x -= 1.0f;
  float over = kOver[5], under = kUnder[5];
  for (int i = 4; i >= 0; --i) {
    over = std::fma(over, x, kOver[i]);
    under = std::fma(under, x, kUnder[i]);
  }
  return std::fma(float(exponent), float(M_LN2), over / under);
}

}  // namespace

std::vector<float> float_linspace(float from, float to, int n) {
  std::vector<float> values(static_cast<size_t>(n));
  const float step = n > 1 ? (to - from) / static_cast<float>(n - 1) : 0;
  for (int i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = i < n / 2 ? std::fma(step, static_cast<float>(i), from)
                                               : std::fma(-step, static_cast<float>(n - i - 1), to);
  return values;
}

std::vector<float> cosine_betas(int n) { return betas_of_bar(n, true); }

std::vector<double> NoiseSchedule::sigmas() const {
  std::vector<double> result;
  for (double a : alphas_cumprod) result.push_back(double(std::sqrt((1.0f - float(a)) / float(a))));
  return result;
}

double NoiseSchedule::alpha(int64_t timestep, double final_alpha) const {
  return timestep < 0 ? final_alpha : alphas_cumprod.at(static_cast<size_t>(timestep));
}

NoiseSchedule read_noise_schedule(const base::ConfigReader& reader,
                                  const ScheduleDefaults& missing) {
  NoiseSchedule schedule;
  schedule.train_steps = static_cast<int>(reader.integer("num_train_timesteps", 1000, 2, 1000000));
  const std::vector<float> betas = read_betas(reader, schedule.train_steps, missing);
  schedule.alphas_cumprod = cumulated(betas);
  require(schedule.alphas_cumprod.back() > 0, ErrorCode::model,
          "{}: the betas leave nothing of a sample after {} training steps; expected smaller ones",
          reader.where(), schedule.train_steps);
  if (missing.rescales && reader.flag("rescale_betas_zero_snr", false))
    schedule.alphas_cumprod = cumulated(with_zero_snr(betas));
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

std::vector<int64_t> trailing_timesteps(int left, double ratio) {
  // numpy.arange adds a rounded difference.
  const double start = left, delta = (start - ratio) - start;
  const int count = static_cast<int>(std::ceil(start / ratio));
  std::vector<int64_t> result;
  for (int i = 0; i < count; ++i)
    result.push_back(static_cast<int64_t>(rounded(start + double(i) * delta)) - 1);
  return result;
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
    result = trailing_timesteps(train_steps, double(train_steps) / double(steps));
  }
  for (int64_t& t : result) t = std::min<int64_t>(t, train_steps - 1);
  return result;
}

Spread read_sharded(const base::ConfigReader& reader) {
  Spread result = Spread::even;
  for (const auto& [key, spread] : {std::pair{"use_karras_sigmas", Spread::karras},
                                    {"use_exponential_sigmas", Spread::exponential},
                                    {"use_beta_sigmas", Spread::beta}}) {
    if (!reader.flag(key, false)) continue;
    require(result == Spread::even, ErrorCode::model,
            "{}: '{}' is true beside another way to spread sigmas; expected one", reader.where(),
            key);
    result = spread;
  }
  return result;
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

std::vector<float> float_logs(const std::vector<double>& values) {
  std::vector<float> logs;
  for (const double value : values) logs.push_back(numpy_log(float(value)));
  return logs;
}

double timestep_of_sigma(const std::vector<float>& logs, double sigma) {
  const double log_sigma = std::log(std::max(sigma, 1e-10));
  // Takes the last entry below, not a binary search: with zero SNR the last sigma may be the
  // smaller.
  const auto below =
      std::find_if(logs.rbegin(), logs.rend(), [&](float log) { return double(log) <= log_sigma; });
  const std::ptrdiff_t place = logs.rend() - below - 1;
  const auto low = static_cast<size_t>(
      std::clamp<std::ptrdiff_t>(place, 0, static_cast<std::ptrdiff_t>(logs.size()) - 2));
  const double w =
      std::clamp((double(logs[low]) - log_sigma) / double(logs[low] - logs[low + 1]), 0.0, 1.0);
  return (1 - w) * double(low) + w * double(low + 1);
}

double sigma_at(const std::vector<double>& sigmas, double timestep) {
  const double place = std::clamp(timestep, 0.0, double(sigmas.size() - 1));
  const size_t low = std::min(static_cast<size_t>(place), sigmas.size() - 2);
  return sigmas[low] + (sigmas[low + 1] - sigmas[low]) * (place - double(low));
}

}  // namespace tessera::sample
