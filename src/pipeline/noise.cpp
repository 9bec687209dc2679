#include "pipeline/noise.h"

#include <optional>
#include <span>

#include "base/random.h"

namespace tessera::pipeline {

struct Noise::State {
  std::optional<base::TorchGenerator> torch;
  std::optional<base::Philox> philox;
};

Noise::Noise(NoiseSource source, uint64_t seed) : state_(std::make_unique<State>()) {
  if (source == NoiseSource::torch)
    state_->torch.emplace(seed);
  else
    state_->philox.emplace(seed);
}
Noise::~Noise() = default;

tensor::Tensor Noise::draw(const tensor::Shape& shape) {
  tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32);
  const std::span<float> values(x.data<float>(), static_cast<size_t>(x.elements()));
  if (state_->torch)
    state_->torch->randn(values);
  else
    state_->philox->randn(values);
  return x;
}

}  // namespace tessera::pipeline
