#pragma once

#include <memory>

#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::pipeline {

/// Noise f32 of a shape, in the numbers of the source.
class Noise {
 public:
  Noise(NoiseSource source, uint64_t seed);
  ~Noise();
  tensor::Tensor draw(const tensor::Shape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::pipeline
