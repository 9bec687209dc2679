#pragma once

#include <string>

#include "nn/weights.h"
#include "ops/matmul.h"

namespace tessera::nn {

/// y = x W^T + b with weights `<name>.weight` [n, k] and `<name>.bias` [n].
class Linear {
 public:
  Linear() = default;
  Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k, ops::DType dtype,
         bool bias = true);

  /// x [tokens, k] -> [tokens, n]; the bias of `options` is this layer's.
  ops::Tensor operator()(const ops::Tensor& x, ops::MatmulOptions options = {}) const;

  const ops::Weight& weight() const { return weight_; }
  const ops::Tensor& bias() const { return bias_; }

 private:
  ops::Weight weight_;
  ops::Tensor bias_;
};

}  // namespace tessera::nn
