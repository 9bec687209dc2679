#pragma once

#include <string>

#include "nn/weights.h"
#include "ops/elementwise.h"

namespace tessera::nn {

/// Weights with stored tensors only: all other forms are packed from these.
class PackingWeights : public Weights {
 public:
  FetchedWeight fetch(const WeightRequest& r) const override {
    const auto part = [&](const std::string& name) { return taken(stored(name, r.shape), r.cut); };
    switch (r.form) {
      case Form::stored:
      case Form::table: break;
      case Form::vector: return {.tensor = ops::cast(part(r.name), ops::DType::f32)};
      case Form::matrix: return {.packed = ops::pack_weight(part(r.name), r.compute)};
      case Form::paired:
        return {.packed = ops::pack_paired_weight(part(r.name), part(r.second), r.compute)};
      case Form::conv: {
        const tensor::Tensor bias =
            r.second.empty() ? tensor::Tensor() : vector(r.second, r.shape[0]);
        const tensor::Tensor weight = stored(r.name, r.shape);
        if (r.shape.rank() == 5)
          return {.frames = ops::pack_frames(weight, bias, r.compute, weight.device())};
        return {.filter = ops::pack_conv(weight, bias, r.compute)};
      }
    }
    return {.tensor = stored(r.name, r.shape)};
  }

 protected:
  virtual tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const = 0;
};

}  // namespace tessera::nn
