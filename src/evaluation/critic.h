#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "nn/linear.h"
#include "nn/weights.h"

namespace tessera::evaluation {

/// The sizes of a critic, from its config.json.
struct CriticConfig {
  std::vector<int64_t> widths;
  int64_t hidden = 0, classes = 0, input = 0;
};
/// Throws Error(model) with the missing or invalid entry.
CriticConfig parse_critic_config(const base::Json& config, const std::string& where);

/// A critic's output for n images, f32.
struct Sight {
  tensor::Tensor logits;    ///< [n, classes]
  tensor::Tensor features;  ///< [n, hidden]: input of the last layer
  /// [n, kSpatialChannels * places]: the first channels of the last convolution, place by place.
  tensor::Tensor spatial;
};
constexpr int64_t kSpatialChannels = 7;  // as many as in sFID (Nash et al. 2021)

/// A small classifier shipped with a model, which names the content of an image: convolutions of
/// stride 2 with ReLU, then two linear layers; f32.
class Critic {
 public:
  Critic(const CriticConfig& config, const nn::Weights& weights);
  /// images f32 [n, height, width, 3] in [0, 1] -> logits f32 [n, classes].
  tensor::Tensor operator()(const tensor::Tensor& images) const { return see(images).logits; }
  Sight see(const tensor::Tensor& images) const;
  const CriticConfig& config() const { return config_; }

 private:
  CriticConfig config_;
  std::vector<ops::ConvWeight> convs_;
  nn::Linear hidden_, head_;
};

/// The class with the largest logit of each row; ties go to the lowest.
std::vector<int> best_class(const tensor::Tensor& logits);

}  // namespace tessera::evaluation
