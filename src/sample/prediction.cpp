#include "sample/prediction.h"

#include "base/fail.h"

namespace tessera::sample {

PredictionType read_prediction(const base::ConfigReader& reader, bool flow) {
  const std::string kind =
      flow ? reader.choice("prediction_type", "epsilon",
                           {"epsilon", "v_prediction", "sample", "flow_prediction"})
           : reader.choice("prediction_type", "epsilon", {"epsilon", "v_prediction", "sample"});
  if (kind == "v_prediction") return PredictionType::velocity;
  if (kind == "sample") return PredictionType::sample;
  return kind == "epsilon" ? PredictionType::epsilon : PredictionType::flow;
}

FromPair clean_of(PredictionType prediction, double alpha, double sigma) {
  switch (prediction) {
    case PredictionType::epsilon: return {1 / alpha, -sigma / alpha};
    case PredictionType::velocity: return {alpha, -sigma};
    case PredictionType::sample: return {0, 1};
    case PredictionType::flow: return {1, -sigma};
  }
  return {};
}

FromPair noise_of(PredictionType prediction, double alpha, double sigma) {
  switch (prediction) {
    case PredictionType::epsilon: return {0, 1};
    case PredictionType::velocity: return {sigma, alpha};
    case PredictionType::sample: return {1 / sigma, -alpha / sigma};
    case PredictionType::flow: return {1, 1 - sigma};
  }
  return {};
}

Clip read_clip(const base::ConfigReader& reader, std::optional<bool> clips, int64_t tokens) {
  if (reader.flag("thresholding", false)) {
    return {.quantile = reader.number("dynamic_thresholding_ratio", 0.995, 1e-6, 1),
            .most = reader.positive("sample_max_value", 1),
            .tokens = tokens};
  }
  if (!clips || !reader.flag("clip_sample", *clips)) return {};
  return {.bound = reader.positive("clip_sample_range", 1)};
}

}  // namespace tessera::sample
