#pragma once

#include <string>

#include "nn/seams.h"
#include "nn/weights.h"
#include "ops/matmul.h"

namespace tessera::nn {

/// A product of which `reduce`'s ranks hold a part each along k: summed in f32, then bias and
/// residual, once; the result in the dtype of x. Null: a plain product. Other options are not for
/// split products.
ops::Tensor reduced_matmul(const ops::Tensor& x, const ops::Weight& weight,
                           const ops::MatmulOptions& options, Reduce* reduce);

/// y = x W^T + b with weights `<name>.weight` [n, k] and `<name>.bias` [n].
class Linear {
 public:
  Linear() = default;
  Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k, ops::DType dtype,
         bool bias = true);

  /// x [tokens, k] -> [tokens, n]; the bias of `options` is this layer's.
  /// `reduce`: of the ranks among which k is split, or null.
  ops::Tensor operator()(const ops::Tensor& x, ops::MatmulOptions options = {},
                         Reduce* reduce = nullptr) const;

  const ops::Weight& weight() const { return weight_; }
  const ops::Tensor& bias() const { return bias_; }

 private:
  ops::Weight weight_;
  ops::Tensor bias_;
};

}  // namespace tessera::nn
