#pragma once

#include <functional>
#include <random>
#include <string>

#include "nn/packing_weights.h"

namespace tessera::models {

/// Any requested tensor, with noise seeded by the name.
class NamedNoise : public nn::PackingWeights {
 public:
  explicit NamedNoise(tensor::Device device = tensor::Device::cpu) : device_(device) {}
  bool has(const std::string&) const override { return true; }
  tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32, device_);
    if (x.is_meta()) return x;
    std::mt19937 rng(static_cast<uint32_t>(std::hash<std::string>{}(name)));
    std::normal_distribution<float> draw(0, 0.2f);
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(rng);
    return x;
  }

 private:
  tensor::Device device_;
};

}  // namespace tessera::models
