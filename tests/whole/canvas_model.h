#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "load/safetensors.h"
#include "models/registry.h"
#include "nn/packing_weights.h"
#include "whole/golden.h"

namespace tessera::golden {

/// Weights by name, similar to a trained model's: norms and scales near 1.
class CanvasNoise : public nn::PackingWeights {
 public:
  explicit CanvasNoise(uint32_t seed, tensor::Device device = tensor::Device::cpu)
      : seed_(seed), device_(device) {}
  bool has(const std::string&) const override { return true; }
  tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    shapes.emplace(name, shape);
    tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32, device_);
    if (x.is_meta()) return x;
    std::mt19937 rng(seed_ + static_cast<uint32_t>(std::hash<std::string>{}(name)));
    const bool matrix = shape.rank() > 1;
    std::normal_distribution<float> draw(matrix ? 0.0f : 1.0f, matrix ? 0.3f : 0.1f);
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(rng);
    return x;
  }
  mutable std::map<std::string, tensor::Shape> shapes;

 private:
  uint32_t seed_;
  tensor::Device device_;
};

/// A folder of a DiffusionGemma of random weights.
class CanvasModel {
 public:
  explicit CanvasModel(const base::Json& config, uint32_t seed = 0)
      : spec(models::language_model_of({config, "config.json"})) {
    write("config.json", config);
    const CanvasNoise asked(seed, tensor::Device::meta), noise(seed);
    spec.make(asked, spec.whole(), tensor::DType::f32, 0);
    std::map<std::string, tensor::Tensor> weights;
    for (const auto& [name, shape] : asked.shapes) weights[name] = noise.get(name, shape);
    load::write_safetensors(path("model.safetensors"), weights);
  }
  std::string path(const std::string& name = "") const { return scratch_ / name; }
  void write(const std::string& name, const base::Json& json) const {
    std::ofstream(path(name)) << json.dump();
  }

  const models::TokenSpec spec;

 private:
  Scratch scratch_;
};

}  // namespace tessera::golden
