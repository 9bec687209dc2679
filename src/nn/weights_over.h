#pragma once

#include <memory>
#include <string>
#include <utility>

#include "nn/weights.h"

namespace tessera::nn {

/// Forwards every question to other weights; subclasses answer some themselves.
class WeightsOver : public Weights {
 public:
  explicit WeightsOver(std::shared_ptr<const Weights> base) : base_(std::move(base)) {}

  Shard shard() const override { return base_->shard(); }
  bool has(const std::string& name) const override { return base_->has(name); }
  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const override {
    return base_->get(name, shape);
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const Cut& cut = {}) const override {
    return base_->matrix(name, n, k, compute, cut);
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const Cut& cut = {}) const override {
    return base_->paired(gate, up, n, k, compute, cut);
  }
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const override {
    return base_->conv(weight, bias, shape, compute);
  }
  tensor::Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const override {
    return base_->vector(name, n, cut);
  }
  tensor::Tensor table(const std::string& name, const tensor::Shape& shape) const override {
    return base_->table(name, shape);
  }
  std::shared_ptr<const Weights> at_use() const override { return base_->at_use(); }

 protected:
  const std::shared_ptr<const Weights> base_;
};

}  // namespace tessera::nn
