#pragma once

#include <string>

#include "nn/weights.h"
#include "ops/elementwise.h"

namespace tessera::nn {

/// Weights with get() only: all other forms are packed from these tensors.
class PackingWeights : public Weights {
 public:
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const Cut& cut = {}) const override {
    return ops::pack_weight(taken(get(name, {n, k}), cut), compute);
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const Cut& cut = {}) const override {
    return ops::pack_paired_weight(taken(get(gate, {n, k}), cut), taken(get(up, {n, k}), cut),
                                   compute);
  }
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const override {
    const tensor::Tensor none;
    return ops::pack_conv(get(weight, shape), bias.empty() ? none : vector(bias, shape[0]),
                          compute);
  }
  tensor::Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const override {
    return ops::cast(taken(get(name, {n}), cut), ops::DType::f32);
  }
};

}  // namespace tessera::nn
