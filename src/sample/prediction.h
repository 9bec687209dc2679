#pragma once

#include <optional>

#include "base/config_reader.h"
#include "sample/linear_sampler.h"

namespace tessera::sample {

/// The prediction type of a denoiser: the noise, v (Salimans & Ho 2022), the clean latent, or the
/// velocity of a flow.
enum class PredictionType { epsilon, velocity, sample, flow };

/// Reads prediction_type (epsilon, v_prediction, sample), with flow_prediction if `flow`.
PredictionType read_prediction(const base::ConfigReader& reader, bool flow = false);

/// Two coefficients, for the latent and for the prediction.
struct FromPair {
  double x = 0, out = 0;
};
/// The clean latent of x = alpha * clean + sigma * noise.
FromPair clean_of(PredictionType prediction, double alpha, double sigma);
/// The noise in x.
FromPair noise_of(PredictionType prediction, double alpha, double sigma);

/// Reads thresholding, dynamic_thresholding_ratio and sample_max_value; without thresholding, and
/// if `clips` has a value, reads clip_sample (default `clips`) and clip_sample_range. `tokens`:
/// tokens of a sample, for thresholding.
Clip read_clip(const base::ConfigReader& reader, std::optional<bool> clips, int64_t tokens);

}  // namespace tessera::sample
