#include "nn/router.h"

namespace tessera::nn {

tensor::Tensor Router::logits(const tensor::Tensor& tokens) const {
  ops::MatmulOptions f32;
  f32.out = tensor::DType::f32;
  f32.out_as_input = false;
  return ops::matmul(tokens, weight, f32);
}

ops::Routing Router::operator()(const tensor::Tensor& tokens) const {
  return ops::route(logits(tokens), options);
}

}  // namespace tessera::nn
