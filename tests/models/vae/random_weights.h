#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "nn/packing_weights.h"

namespace tessera::models {

/// Any requested tensor: numbers drawn from the name, small enough for a stable network.
class RandomWeights : public nn::PackingWeights {
 public:
  explicit RandomWeights(tensor::Device device = tensor::Device::cpu, bool old_names = false)
      : device_(device), old_names_(old_names) {}

  bool has(const std::string& name) const override {
    return old_names_ && name.ends_with(".query.weight");
  }
  tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32, device_);
    if (x.is_meta()) return x;
    std::mt19937 rng(static_cast<uint32_t>(std::hash<std::string>{}(name)));
    const int64_t fan_in = shape.elements() / std::max<int64_t>(shape[0], 1);
    std::normal_distribution<float> draw(0, 1 / std::sqrt(static_cast<float>(fan_in)));
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(rng);
    return x;
  }

 private:
  tensor::Device device_;
  bool old_names_;
};

}  // namespace tessera::models
