#pragma once

#include <optional>

#include "base/config_reader.h"
#include "sample/linear_sampler.h"

namespace tessera::sample {

/// What a denoiser predicts: the noise, v (Salimans & Ho 2022), the clean latent, or the velocity
/// of a flow.
enum class PredictionType { epsilon, velocity, sample, flow };

/// Reads prediction_type (epsilon, v_prediction, sample), with flow_prediction if `flow`.
PredictionType read_prediction(const base::ConfigReader& read, bool flow = false);

/// Two coefficients: of the latent and of the prediction.
struct FromPair {
  double x = 0, out = 0;
};
/// The clean latent of x = alpha * clean + sigma * noise.
FromPair clean_of(PredictionType prediction, double alpha, double sigma);
/// The noise in it.
FromPair noise_of(PredictionType prediction, double alpha, double sigma);

/// Reads thresholding, dynamic_thresholding_ratio and sample_max_value; without them, and if
/// `clips` has a value, clip_sample, which it is the default of, and clip_sample_range. `tokens` of
/// a sample are for thresholding.
Clip read_clip(const base::ConfigReader& read, std::optional<bool> clips, int64_t tokens);

}  // namespace tessera::sample
