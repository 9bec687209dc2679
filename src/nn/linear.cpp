#include "nn/linear.h"

#include <utility>
#include <vector>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::nn {

Linear::Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k,
               ops::DType dtype, bool bias)
    : weight_(weights.matrix(name + ".weight", n, k, dtype)) {
  if (bias) bias_ = weights.vector(name + ".bias", n);
}

ops::Tensor reduced_matmul(const ops::Tensor& x, const ops::Weight& weight,
                           const ops::MatmulOptions& options, Reduce* reduce) {
  if (!reduce) return ops::matmul(x, weight, options);
  require(options.activation == ops::Activation::none && !options.gate.defined() &&
              !options.into.defined(),
          ErrorCode::usage,
          "a product split along k takes no activation, no gate and no place for its result: they "
          "need the whole sum");
  ops::Tensor sum = ops::matmul(x, weight, {.out = ops::DType::f32, .out_as_input = false});
  reduce->sum(sum);
  if (options.bias.defined()) sum = ops::add_row(sum, options.bias);
  if (options.residual.defined()) sum = ops::add(sum, ops::cast(options.residual, ops::DType::f32));
  return ops::cast(sum, x.dtype());
}

ops::Tensor Linear::operator()(const ops::Tensor& x, ops::MatmulOptions options,
                               Reduce* reduce) const {
  options.bias = bias_;
  return reduced_matmul(x, weight_, options, reduce);
}

}  // namespace tessera::nn
