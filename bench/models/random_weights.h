#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "nn/packing_weights.h"

namespace tessera::bench {

/// Weights of any name: uniform values with a prime period, scaled so that products keep the size
/// of their inputs.
class RandomWeights : public nn::PackingWeights {
 public:
  /// Created where they are packed: a device is sent a single period only.
  explicit RandomWeights(tensor::Device device = tensor::Device::cpu)
      : device_(device), block_(65521) {
    std::minstd_rand rng(1);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (float& v : block_) v = draw(rng);
  }
  bool has(const std::string&) const override { return false; }
  tensor::Tensor stored(const std::string&, const tensor::Shape& shape) const override {
    const int64_t elements = shape.elements();
    const tensor::Tensor x = tensor::Tensor::empty({elements}, tensor::DType::f32, device_,
                                                   tensor::MemoryClass::buffers);
    const float range = std::sqrt(static_cast<float>(shape[0]) / static_cast<float>(elements));
    std::vector<float> first(static_cast<size_t>(std::min<int64_t>(elements, std::ssize(block_))));
    for (size_t i = 0; i < first.size(); ++i) first[i] = range * block_[i];
    int64_t count = std::ssize(first);
    tensor::copy_into(x.slice(0, 0, count),
                      tensor::Tensor::from(std::span<const float>(first), {count}));
    for (int64_t next = 0; count < elements; count += next) {
      next = std::min(count, elements - count);
      tensor::copy_into(x.slice(0, count, count + next), x.slice(0, 0, next));
    }
    return x.reshape(shape);
  }

 private:
  tensor::Device device_;
  std::vector<float> block_;
};

}  // namespace tessera::bench
