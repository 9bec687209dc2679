#pragma once

#include <vector>

#include "base/config_reader.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {

/// The timesteps of a solver in sigma (Karras et al. 2022): x = clean + sigma * noise, and the
/// denoiser sees x / sqrt(1 + sigma^2).
struct SigmaSteps {
  std::vector<double> times, sigmas;  ///< sigmas has an entry more than times
  double initial_scale = 1;

  /// The factor of the denoiser's input.
  static double input_scale(double sigma);
  /// The clean latent from x and from the denoiser's output.
  static FromPair clean_of(PredictionType prediction, double sigma);
};

/// Differences between the classes of diffusers.
struct SigmaKeys {
  ScheduleDefaults schedule{};
  bool spreads = true;  ///< read use_karras_sigmas and similar keys
  bool ends = false;    ///< read sigma_min, sigma_max and final_sigmas_type
};
/// Reads the noise schedule and the spacing of steps.
SigmaSteps sigma_steps(const base::ConfigReader& reader, const ScheduleRequest& request,
                       const SigmaKeys& keys);

}  // namespace tessera::sample
