#pragma once

#include <memory>
#include <string>

#include "nn/input_records.h"
#include "nn/packing_weights.h"
#include "nn/weight_change.h"

namespace tessera::nn {

/// Numbers around 0, the same in every run.
inline tensor::Tensor numbers(const tensor::Shape& shape, float scale) {
  const tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = scale * static_cast<float>((i * 37 + 11) % 23 - 11);
  return x;
}

/// Weights of any name, made by numbers().
class OneLayer final : public PackingWeights {
 public:
  bool has(const std::string&) const override { return true; }
  tensor::Tensor stored(const std::string&, const tensor::Shape& shape) const override {
    return numbers(shape, 0.05f);
  }
};

/// The same, with columns of "x.weight" times factors, and inputs over them.
class SmoothedLayer final : public PackingWeights {
 public:
  bool has(const std::string&) const override { return true; }
  bool smoothed(const std::string& weight) const override { return weight == "x.weight"; }
  tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    tensor::Tensor x = numbers(shape, 0.05f);
    const bool inverse = name == input_scale_of("x.weight");
    if (!inverse && name != "x.weight") return x;
    for (int64_t i = 0; i < x.elements(); ++i) {
      const float factor = 0.5f + static_cast<float>(i % shape[shape.rank() - 1]);
      x.data<float>()[i] = inverse ? 1 / factor : x.data<float>()[i] * factor;
    }
    return x;
  }
};

/// A pair of rank 2 for "x.weight" [16, 24].
inline std::shared_ptr<const WeightChanges> pair_of_rank_two() {
  WeightChange change;
  change.down = numbers({2, 24}, 0.03f);
  change.up = numbers({16, 2}, 0.04f);
  return std::make_shared<WeightChanges>(WeightChanges{{"x.weight", {change}}});
}

}  // namespace tessera::nn
