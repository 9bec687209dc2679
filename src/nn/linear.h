#pragma once

#include <functional>
#include <string>

#include "nn/seams.h"
#include "nn/weights.h"
#include "ops/matmul.h"

namespace tessera::nn {

/// A product with a part along k on each of `reduce`'s ranks: summed in f32, then bias, gate and
/// residual, once; the result has x's dtype. Null: a plain product. Split products take no
/// activation; a gate needs a residual.
ops::Tensor reduced_matmul(const ops::Tensor& x, const ops::Weight& weight,
                           const ops::MatmulOptions& options, Reduce* reduce);

/// Properties of a layer besides its sizes.
struct LinearForm {
  bool bias = true;
  Split split{};  ///< for tensor parallelism
};

/// y = x W^T + b with weights `<name>.weight` [n, k] and `<name>.bias` [n], or a shard. The inputs
/// of smoothed weights are scaled (nn/input_records.h).
class Linear {
 public:
  Linear() = default;
  Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k, ops::DType dtype,
         const LinearForm& form = {});

  /// x [tokens, k] -> [tokens, n]; the bias of `options` comes from this layer. A split by outputs
  /// gives the shard's columns; a split by inputs takes the shard's columns, and needs `reduce`.
  ops::Tensor operator()(const ops::Tensor& x, ops::MatmulOptions options = {},
                         Reduce* reduce = nullptr) const;

  const ops::Weight& weight() const { return weight_; }
  const ops::Tensor& bias() const { return bias_; }

 private:
  ops::Weight weight_;                    // on meta with bring_
  std::function<FetchedWeight()> bring_;  // fetches the weight at its use; null: present
  ops::Tensor bias_;
  ops::Tensor input_scale_;  // f32 [k]; undefined: none
  std::shared_ptr<InputRecord> record_;
  bool partial_ = false;  // other ranks hold the rest along k
};

}  // namespace tessera::nn
