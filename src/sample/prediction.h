#pragma once

#include "base/config_reader.h"
#include "sample/linear_sampler.h"

namespace tessera::sample {

/// What a denoiser predicts: the noise, v (Salimans & Ho 2022), the clean latent, or the velocity
/// of a flow.
enum class Prediction { epsilon, velocity, sample, flow };

/// Reads prediction_type (epsilon, v_prediction, sample), with flow_prediction if `flow`.
Prediction read_prediction(const base::ConfigReader& read, bool flow = false);

/// Two coefficients: of the latent and of the prediction.
struct FromPair {
  double x = 0, out = 0;
};
/// The clean latent of x = alpha * clean + sigma * noise.
FromPair clean_of(Prediction prediction, double alpha, double sigma);
/// The noise in it.
FromPair noise_of(Prediction prediction, double alpha, double sigma);

/// The bound of clip_sample and clip_sample_range; infinite without. Throws Error(model) when
/// thresholding is asked for, which is not element-wise.
double read_clip(const base::ConfigReader& read, bool missing);

}  // namespace tessera::sample
