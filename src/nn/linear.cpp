#include "nn/linear.h"

#include <utility>

namespace tessera::nn {

Linear::Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k,
               ops::DType dtype, bool bias)
    : weight_(weights.matrix(name + ".weight", n, k, dtype)) {
  if (bias) bias_ = weights.vector(name + ".bias", n);
}

ops::Tensor Linear::operator()(const ops::Tensor& x, ops::MatmulOptions options) const {
  options.bias = bias_;
  return ops::matmul(x, weight_, options);
}

}  // namespace tessera::nn
