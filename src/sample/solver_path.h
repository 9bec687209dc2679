#pragma once

#include <cmath>
#include <vector>

#include "base/config_reader.h"
#include "sample/linear_sampler.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {

/// The timesteps of a solver in log-SNR: x = alpha * clean + sigma * noise.
struct SolverPath {
  bool flow = false;                  ///< alpha + sigma = 1; else their squares sum to 1
  std::vector<double> times, sigmas;  ///< sigmas has an entry more than times

  double alpha(size_t i) const {
    return flow ? 1 - sigmas[i] : 1 / std::sqrt(sigmas[i] * sigmas[i] + 1);
  }
  double sigma(size_t i) const { return flow ? sigmas[i] : sigmas[i] * alpha(i); }
  Sampler::Noised noised(size_t i) const { return {alpha(i), sigma(i)}; }
  double lambda(size_t i) const { return std::log(alpha(i)) - std::log(sigma(i)); }
};

/// The classes of diffusers with this path; each reads different keys.
enum class SolverClass : uint8_t { dpm_multistep, dpm_singlestep, unipc, deis };

/// Reads the noise schedule and the spacing of steps, as `kind` does. Throws Error(model) for
/// unsupported values, Error(usage) for an invalid number of steps.
SolverPath solver_path(const base::ConfigReader& reader, const ScheduleRequest& request,
                       SolverClass kind);
/// Reads the prediction type of the denoiser; a flow must be predicted on the path of a flow, and
/// nowhere else.
PredictionType read_path_prediction(const base::ConfigReader& reader, const SolverPath& path);
/// mu of a shift that depends on the sample's size (Esser et al. 2024): linear in its tokens.
/// `max_shift` is the default of a missing key.
double read_size_shift(const base::ConfigReader& reader, int64_t tokens, double max_shift = 1.15);

}  // namespace tessera::sample
