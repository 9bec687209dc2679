#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "models/named_noise.h"
#include "models/registry.h"
#include "nn/packing_weights.h"
#include "parallel/denoise.h"

namespace tessera::device {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

/// Weights of another source on a device.
class WeightsOn : public nn::PackingWeights {
 public:
  WeightsOn(Device device, std::shared_ptr<const nn::Weights> from)
      : device_(device), from_(std::move(from)) {}
  bool has(const std::string& name) const override { return from_->has(name); }
  Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    return from_->get(name, shape).to(device_);
  }

 private:
  Device device_;
  std::shared_ptr<const nn::Weights> from_;
};

/// A model of a spec with named noise for weights, on a device.
struct TinyTransformer {
  Device device;
  models::PipelineSpec spec;
  std::unique_ptr<nn::Denoiser> network;

  TinyTransformer(Device on, const char* type, const char* config, DType dtype)
      : device(on),
        spec(models::pipeline_of(type, {base::Json::parse(config), "config.json"})),
        network(spec.make(WeightsOn(on, std::make_shared<models::NamedNoise>()), spec.whole(),
                          dtype)) {}

  /// Two sequences with texts of `length` tokens (0: as the spec's example).
  nn::Conditioning conditioning(int64_t length) const {
    nn::Conditioning c = spec.example(2);
    for (auto& [name, x] : c.tensors) {
      tensor::Shape shape = x.shape();
      if (shape.rank() == 3 && length > 0) shape = shape.with(1, length);
      const bool numbers = x.dtype() == DType::i32;
      x = numbers ? Tensor::zeros(shape, x.dtype()) : models::NamedNoise().get(name, shape);
    }
    return c;
  }
  Tensor operator()(const nn::Conditioning& c, const nn::TokenLayout& layout) const {
    const Tensor latent =
        models::NamedNoise().get("latent", {2 * layout.tokens(), layout.token_channels()});
    const Tensor time = Tensor::from(std::vector<float>{400, 250}, {2});
    parallel::Setup setup({}, network->geometry(), {2, layout.grid(), 1, 1, spec.prefix(c)},
                          nullptr, {device});
    return parallel::forward(*network, c, time, latent, setup, {});
  }
  /// Runs steps that a device may record.
  Tensor denoised(const nn::Conditioning& c, const nn::TokenLayout& layout, int steps) const {
    const Tensor latent =
        models::NamedNoise().get("latent", {2 * layout.tokens(), layout.token_channels()});
    parallel::Setup setup({}, network->geometry(), {2, layout.grid(), 1, steps, spec.prefix(c)},
                          nullptr, {device, true});
    return parallel::denoise(*network, c, *sample::rectified_flow(steps), {}, latent, {}, setup,
                             {});
  }
};

}  // namespace tessera::device
