#include "diffusion/noise.h"

#include <span>
#include <variant>

#include "base/random.h"

namespace tessera::diffusion {

namespace {
using Source = std::variant<base::TorchGenerator, base::Philox>;
}  // namespace

struct Noise::State {
  std::vector<Source> sources;
};

Noise::Noise(NoiseSource source, const std::vector<uint64_t>& seeds)
    : state_(std::make_unique<State>()) {
  for (const uint64_t seed : seeds) {
    if (source == NoiseSource::torch)
      state_->sources.emplace_back(std::in_place_type<base::TorchGenerator>, seed);
    else
      state_->sources.emplace_back(std::in_place_type<base::Philox>, seed);
  }
}
Noise::~Noise() = default;

tensor::Tensor Noise::draw(const tensor::Shape& shape) {
  tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32);
  std::vector<Source>& sources = state_->sources;
  const size_t part = static_cast<size_t>(x.elements()) / sources.size();
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::span<float> values(x.data<float>() + i * part, part);
    std::visit([&](auto& source) { source.randn(values); }, sources[i]);
  }
  return x;
}

}  // namespace tessera::diffusion
