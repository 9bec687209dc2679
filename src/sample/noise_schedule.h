#pragma once

#include <string>
#include <vector>

#include "base/config_reader.h"

namespace tessera::sample {

/// The variances of a diffusion process and the timesteps of a solver, computed in the precision of
/// diffusers for exactly equal timesteps.
struct NoiseSchedule {
  int train_steps = 1000;
  std::vector<double> alphas_cumprod;  ///< f32 values

  /// sqrt((1 - a) / a) of every training step, f32 values.
  std::vector<double> sigmas() const;
  /// Alpha bar of a timestep; before the first timestep `final_alpha`.
  double alpha(int64_t timestep, double final_alpha) const;
};

/// Differences between the classes of diffusers in reading a schedule.
struct ScheduleDefaults {
  const char* kind = "linear";
  double start = 0.0001, end = 0.02;
  bool rescales = true;  ///< rescale_betas_zero_snr (Lin et al. 2023) is read
};
/// Reads num_train_timesteps, beta_start, beta_end, beta_schedule (linear, scaled_linear,
/// squaredcos_cap_v2, exp, sigmoid), trained_betas and rescale_betas_zero_snr.
NoiseSchedule read_noise_schedule(const base::ConfigReader& reader,
                                  const ScheduleDefaults& missing = {});

/// Betas of Nichol & Dhariwal's cosine.
std::vector<float> cosine_betas(int n);

/// How a solver of `steps` steps is spread: "linspace", "leading" or "trailing" (Lin et al. 2023,
/// table 2), latest first. Throws Error(usage) for more steps than training had.
std::vector<int64_t> spaced_timesteps(const std::string& spacing, int train_steps, int steps,
                                      int64_t offset);

/// From the last of `left` timesteps down in steps of `ratio`, as numpy.arange computes them.
std::vector<int64_t> trailing_timesteps(int left, double ratio);

/// n numbers from `from` to `to`, as torch.linspace computes floats: from both ends.
std::vector<float> float_linspace(float from, float to, int n);
/// n numbers from `from` to `to`, as numpy.linspace computes them.
std::vector<double> linspace(double from, double to, int n);
/// Half to even, as numpy rounds.
double rounded(double x);
/// How sigmas are spread between two: as their timesteps are; by Karras et al. 2022, equation 5
/// (rho 7); evenly in the logarithm; by the quantiles of a beta distribution (Lee et al. 2024).
enum class Spread : uint8_t { even, karras, exponential, beta };
/// Reads use_karras_sigmas, use_exponential_sigmas and use_beta_sigmas; at most a single flag may
/// be true.
Spread read_sharded(const base::ConfigReader& reader);
/// n sigmas from the largest to the smallest; `spread` is not even.
std::vector<double> spread_sigmas(Spread spread, double largest, double smallest, int n);
/// Logarithms of f32 values, bit-identical to numpy, whose function differs from the system's in a
/// seventh of all values.
std::vector<float> float_logs(const std::vector<double>& values);
/// The place of a sigma between the logarithms of those of training.
double timestep_of_sigma(const std::vector<float>& logs, double sigma);
/// sigmas at places that may lie between entries.
double sigma_at(const std::vector<double>& sigmas, double timestep);
/// Throws Error(usage) unless 1 <= steps <= most.
void check_steps(int steps, int most);

}  // namespace tessera::sample
