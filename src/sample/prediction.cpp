#include "sample/prediction.h"

#include "base/fail.h"

namespace tessera::sample {

Prediction read_prediction(const base::ConfigReader& read, bool flow) {
  const std::string kind =
      flow ? read.choice("prediction_type", "epsilon",
                         {"epsilon", "v_prediction", "sample", "flow_prediction"})
           : read.choice("prediction_type", "epsilon", {"epsilon", "v_prediction", "sample"});
  if (kind == "v_prediction") return Prediction::velocity;
  if (kind == "sample") return Prediction::sample;
  return kind == "epsilon" ? Prediction::epsilon : Prediction::flow;
}

FromPair clean_of(Prediction prediction, double alpha, double sigma) {
  switch (prediction) {
    case Prediction::epsilon: return {1 / alpha, -sigma / alpha};
    case Prediction::velocity: return {alpha, -sigma};
    case Prediction::sample: return {0, 1};
    case Prediction::flow: return {1, -sigma};
  }
  return {};
}

FromPair noise_of(Prediction prediction, double alpha, double sigma) {
  switch (prediction) {
    case Prediction::epsilon: return {0, 1};
    case Prediction::velocity: return {sigma, alpha};
    case Prediction::sample: return {1 / sigma, -alpha / sigma};
    case Prediction::flow: return {1, 1 - sigma};
  }
  return {};
}

double read_clip(const base::ConfigReader& read, bool missing) {
  read.refuse("thresholding", "dynamic thresholding");
  if (!read.flag("clip_sample", missing)) return std::numeric_limits<double>::infinity();
  return read.positive("clip_sample_range", 1);
}

}  // namespace tessera::sample
