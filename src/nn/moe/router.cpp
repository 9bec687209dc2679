#include "nn/moe/router.h"

#include "base/fail.h"
#include "ops/finite.h"

namespace tessera::nn {

tensor::Tensor Router::logits(const tensor::Tensor& tokens) const {
  ops::MatmulOptions f32;
  f32.out = tensor::DType::f32;
  f32.out_as_input = false;
  const tensor::Tensor& x = input(tokens);
  require(x.size(0) == tokens.size(0), ErrorCode::usage,
          "the router of block {} has {} rows of its own for {} tokens", block, x.size(0),
          tokens.size(0));
  const tensor::Tensor logits = ops::matmul(x, weight, f32);
  if (logits.device() == tensor::Device::cpu && !ops::all_finite(logits)) {
    ops::require_finite(x, fmt::format("block {}", block));
    ops::require_finite(logits, fmt::format("the router of block {}", block));
  }
  return logits;
}

ops::Routing Router::operator()(const tensor::Tensor& tokens) const {
  return ops::route(logits(tokens), options);
}

}  // namespace tessera::nn
