#pragma once

#include <functional>
#include <string>

#include "nn/seams.h"
#include "nn/weights.h"
#include "ops/matmul.h"

namespace tessera::nn {

/// A product of which `reduce`'s ranks hold a part each along k: summed in f32, then bias, gate and
/// residual, once; the result in the dtype of x. Null: a plain product. An activation is not for
/// split products, and a gate is there for a residual.
ops::Tensor reduced_matmul(const ops::Tensor& x, const ops::Weight& weight,
                           const ops::MatmulOptions& options, Reduce* reduce);

/// What a layer is beside its sizes.
struct LinearForm {
  bool bias = true;
  Split split{};  ///< over the ranks of tensor parallelism
};

/// y = x W^T + b with weights `<name>.weight` [n, k] and `<name>.bias` [n], or a shard of them.
class Linear {
 public:
  Linear() = default;
  Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k, ops::DType dtype,
         const LinearForm& form = {});

  /// x [tokens, k] -> [tokens, n]; the bias of `options` is this layer's. What is split by its
  /// outputs gives the shard's columns; what is split by its inputs takes them, and needs `reduce`.
  ops::Tensor operator()(const ops::Tensor& x, ops::MatmulOptions options = {},
                         Reduce* reduce = nullptr) const;

  const ops::Weight& weight() const { return weight_; }
  const ops::Tensor& bias() const { return bias_; }

 private:
  ops::Weight weight_;                  // on meta where it is brought
  std::function<ops::Weight()> bring_;  // when it is used; null: it is here
  ops::Tensor bias_;
  bool partial_ = false;  // other ranks hold the rest along k
};

}  // namespace tessera::nn
