#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// Noise f32 of a shape, in the numbers of the source. Of several seeds each is of a sample, and
/// draws its noise as if that were alone.
class Noise {
 public:
  Noise(NoiseSource source, const std::vector<uint64_t>& seeds);
  ~Noise();
  /// Axis 0 of the shape are the samples.
  tensor::Tensor draw(const tensor::Shape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::diffusion
