#pragma once

#include <string>
#include <vector>

#include "base/config_reader.h"

namespace tessera::sample {

/// The variances of a diffusion process and the places where a solver stops in it, computed in the
/// precision in which diffusers computes them, so that timesteps come out exactly.
struct NoiseSchedule {
  int train_steps = 1000;
  std::vector<double> alphas_cumprod;  ///< f32 values

  /// sqrt((1 - a) / a) of every training step, f32 values.
  std::vector<double> sigmas() const;
  /// a of a timestep; of one before the first: `final_alpha`.
  double alpha(int64_t timestep, double final_alpha) const;
};

/// Reads num_train_timesteps, beta_start, beta_end, beta_schedule (linear, scaled_linear,
/// squaredcos_cap_v2), trained_betas and rescale_betas_zero_snr (Lin et al. 2023).
NoiseSchedule read_noise_schedule(const base::ConfigReader& read);

/// How a solver of `steps` steps is spread: "linspace", "leading" or "trailing" (Lin et al. 2023,
/// table 2), latest first. Throws Error(usage) for more steps than training had.
std::vector<int64_t> spaced_timesteps(const std::string& spacing, int train_steps, int steps,
                                      int64_t offset);

/// n numbers from `from` to `to`, as numpy.linspace computes them.
std::vector<double> linspace(double from, double to, int n);
/// Half to even, as numpy rounds.
double rounded(double x);
/// Karras et al. 2022, equation 5 (rho 7), between two sigmas.
std::vector<double> karras_sigmas(double largest, double smallest, int n);
/// Evenly spaced in the logarithm.
std::vector<double> exponential_sigmas(double largest, double smallest, int n);
/// The place in `sigmas` (rising) with this sigma, between entries by logarithm.
double timestep_of_sigma(const std::vector<double>& sigmas, double sigma);
/// sigmas at places that may lie between entries.
double sigma_at(const std::vector<double>& sigmas, double timestep);
/// Throws Error(usage) unless 1 <= steps <= most.
void check_steps(int steps, int most);

}  // namespace tessera::sample
