#pragma once

#include "load/quantise_rules.h"
#include "models/random_weights.h"
#include "ops/matmul.h"

namespace tessera::bench {

/// Random weights, packed like those of a folder in bf16, int8 or int4 without further rules.
class RuledWeights : public RandomWeights {
 public:
  using Bits = load::QuantiseRules::Bits;
  explicit RuledWeights(Bits bits, tensor::Device device = tensor::Device::cpu)
      : RandomWeights(device), bits_(bits), rules_(load::QuantiseRules::all_in(bits)) {}
  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override {
    if (bits_ == Bits::none || request.form != Form::matrix) return RandomWeights::fetch(request);
    const Tensor part = nn::taken(stored(request.name, request.shape), request.cut);
    return {.packed = ops::pack_weight(
                part, rules_.form(request.name, request.compute, request.shape[1], false))};
  }

 private:
  Bits bits_;
  load::QuantiseRules rules_;
};

}  // namespace tessera::bench
