#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::diffusion {

/// Noise f32 of a shape, from the generator of the noise source. With several seeds each seed
/// belongs to a sample, whose noise is the same as in a run alone.
class Noise {
 public:
  Noise(NoiseSource source, const std::vector<uint64_t>& seeds);
  ~Noise();
  /// Axis 0 of the shape counts samples.
  tensor::Tensor draw(const tensor::Shape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::diffusion
