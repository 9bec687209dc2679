#pragma once

#include <memory>
#include <string>

#include "nn/weights.h"

namespace tessera::nn {

/// Weights with a part for a rank: every layer declares its split, and is cut during packing. Must
/// not outlive `whole`.
class ShardedWeights final : public Weights {
 public:
  ShardedWeights(const Weights& whole, const Shard& shard) : whole_(whole), shard_(shard) {}

  Shard shard() const override { return shard_; }
  bool has(const std::string& name) const override { return whole_.has(name); }
  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const override {
    return whole_.get(name, shape);
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const Cut& cut = {}) const override {
    return whole_.matrix(name, n, k, compute, cut);
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const Cut& cut = {}) const override {
    return whole_.paired(gate, up, n, k, compute, cut);
  }
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const override {
    return whole_.conv(weight, bias, shape, compute);
  }
  tensor::Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const override {
    return whole_.vector(name, n, cut);
  }
  tensor::Tensor table(const std::string& name, const tensor::Shape& shape) const override {
    return whole_.table(name, shape);
  }
  std::shared_ptr<const Weights> at_use() const override { return whole_.at_use(); }

 private:
  const Weights& whole_;
  Shard shard_;
};

}  // namespace tessera::nn
