#include "nn/moe/router.h"

#include "base/fail.h"
#include "ops/finite.h"

namespace tessera::nn {

tensor::Tensor Router::logits(const tensor::Tensor& tokens) const {
  ops::MatmulOptions f32;
  f32.out = tensor::DType::f32;
  f32.out_as_input = false;
  const tensor::Tensor made = ops::matmul(tokens, weight, f32);
  if (made.device() == tensor::Device::cpu && !ops::all_finite(made)) {
    ops::require_finite(tokens, fmt::format("block {}", block));
    ops::require_finite(made, fmt::format("the router of block {}", block));
  }
  return made;
}

ops::Routing Router::operator()(const tensor::Tensor& tokens) const {
  return ops::route(logits(tokens), options);
}

}  // namespace tessera::nn
