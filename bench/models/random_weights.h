#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "nn/packing_weights.h"

namespace tessera::bench {

/// Weights of any name: uniform values with a prime period, scaled so that products keep the size
/// of what they are fed.
class RandomWeights : public nn::PackingWeights {
 public:
  RandomWeights() : block_(65521) {
    std::minstd_rand rng(1);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (float& v : block_) v = draw(rng);
  }
  bool has(const std::string&) const override { return false; }
  tensor::Tensor get(const std::string&, const tensor::Shape& shape) const override {
    tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32, tensor::Device::cpu,
                                             tensor::MemoryClass::buffers);
    const float range =
        std::sqrt(static_cast<float>(shape[0]) / static_cast<float>(shape.elements()));
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = range * block_[static_cast<size_t>(i) % block_.size()];
    return x;
  }

 private:
  std::vector<float> block_;
};

}  // namespace tessera::bench
