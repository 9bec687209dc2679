#pragma once

#include <vector>

#include "base/config_reader.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {

/// Where a solver in sigma stops (Karras et al. 2022): x = clean + sigma * noise, and the denoiser
/// sees x / sqrt(1 + sigma^2).
struct SigmaSteps {
  std::vector<double> times, sigmas;  ///< sigmas: one more than times
  double initial_scale = 1;

  /// What the denoiser's input is multiplied with.
  static double input_scale(double sigma);
  /// The clean latent from x and from what the denoiser says of its input.
  static FromPair clean_of(PredictionType prediction, double sigma);
};

/// Where the classes of diffusers differ.
struct SigmaKeys {
  ScheduleDefaults schedule{};
  bool spreads = true;  ///< use_karras_sigmas and its like are read
  bool ends = false;    ///< sigma_min, sigma_max and final_sigmas_type are
};
/// Reads the noise schedule and how steps are spread over it.
SigmaSteps sigma_steps(const base::ConfigReader& read, const ScheduleRequest& request,
                       const SigmaKeys& keys);

}  // namespace tessera::sample
