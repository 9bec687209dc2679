#include "evaluation/critic.h"

#include <algorithm>

#include "base/fail.h"
#include "ops/conv.h"

namespace tessera::evaluation {
namespace {

using tensor::DType;
using tensor::Tensor;

int64_t size_in(const base::Json& json, const char* key, const std::string& where) {
  require(json.is_object() && json.contains(key) && json[key].is_number_integer() &&
              json[key] >= 1 && json[key] <= 4096,
          ErrorCode::model, "{}: '{}' must be a whole number from 1 to 4096", where, key);
  return json[key].get<int64_t>();
}

void relu(Tensor& x) {
  float* values = x.data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) values[i] = std::max(values[i], 0.0f);
}

// [n, h, w, c] -> [n, c * h * w], channel slowest, as PyTorch flattens.
Tensor flattened(const Tensor& x) {
  const int64_t n = x.size(0), pixels = x.size(1) * x.size(2), channels = x.size(3);
  Tensor flat = Tensor::empty({n, channels * pixels}, DType::f32);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c)
        flat.row<float>(i)[c * pixels + p] = x.data<float>()[(i * pixels + p) * channels + c];
  return flat;
}

}  // namespace

CriticConfig parse_critic_config(const base::Json& config, const std::string& where) {
  CriticConfig c;
  c.hidden = size_in(config, "hidden", where);
  c.classes = size_in(config, "classes", where);
  c.input = size_in(config, "input", where);
  require(config.contains("widths") && config["widths"].is_array() && !config["widths"].empty() &&
              config["widths"].size() <= 16,
          ErrorCode::model, "{}: 'widths' must be a list of 1 to 16 numbers", where);
  for (const auto& width : config["widths"]) {
    require(width.is_number_integer() && width >= 1 && width <= 4096, ErrorCode::model,
            "{}: 'widths' must hold whole numbers from 1 to 4096", where);
    c.widths.push_back(width.get<int64_t>());
  }
  return c;
}

Critic::Critic(const CriticConfig& config, const nn::Weights& weights) : config_(config) {
  int64_t in = 3, side = config.input;
  for (size_t i = 0; i < config.widths.size(); ++i) {
    const std::string name = "convs." + std::to_string(i);
    convs_.push_back(
        weights.conv(name + ".weight", name + ".bias", {config.widths[i], in, 3, 3}, DType::f32));
    in = config.widths[i];
    side = (side + 1) / 2;
  }
  hidden_ = nn::Linear(weights, "hidden", config.hidden, in * side * side, DType::f32);
  head_ = nn::Linear(weights, "head", config.classes, config.hidden, DType::f32);
}

Sight Critic::see(const Tensor& images) const {
  require(images.rank() == 4 && images.size(1) == config_.input &&
              images.size(2) == config_.input && images.size(3) == 3,
          ErrorCode::usage, "the critic sees images [n, {}, {}, 3], not {}", config_.input,
          config_.input, images.shape().str());
  Tensor x = Tensor::empty(images.shape(), DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = images.data<float>()[i] * 2 - 1;
  for (const ops::ConvWeight& conv : convs_) {
    x = ops::conv2d(x, conv,
                    {.stride = 2, .pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1});
    relu(x);
  }
  const Tensor flat = flattened(x);
  const int64_t places = x.size(1) * x.size(2), spatial = std::min(kSpatialChannels, x.size(3));
  Tensor features = hidden_(flat);
  relu(features);
  return {head_(features), features, flat.slice(1, 0, spatial * places).contiguous()};
}

std::vector<int> best_class(const Tensor& logits) {
  std::vector<int> best;
  for (int64_t i = 0; i < logits.size(0); ++i) {
    const float* row = logits.row<float>(i);
    best.push_back(static_cast<int>(std::max_element(row, row + logits.size(1)) - row));
  }
  return best;
}

}  // namespace tessera::evaluation
