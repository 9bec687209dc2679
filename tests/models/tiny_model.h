#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "models/named_noise.h"
#include "models/registry.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::models {

/// A model of a spec with named noise for weights.
struct TinyModel {
  PipelineSpec spec;
  std::unique_ptr<nn::Denoiser> network;

  TinyModel(const char* type, const char* config, tensor::Device device = tensor::Device::cpu,
            tensor::DType dtype = tensor::DType::f32)
      : spec(pipeline_of(type, {base::Json::parse(config), "config.json"})),
        network(spec.make(NamedNoise(device), spec.whole(), dtype)) {}

  /// Conditioning of `batch` sequences with the shapes of the spec's example; text cut to `length`.
  nn::Conditioning conditioning(int batch, int64_t length) const {
    nn::Conditioning c = spec.example(batch);
    for (auto& [name, x] : c.tensors) {
      tensor::Shape shape = x.shape();
      if (shape.rank() == 3 && length > 0) shape = shape.with(1, length);
      if (x.dtype() == tensor::DType::i32)
        x = tensor::Tensor::zeros(shape, x.dtype());
      else
        x = NamedNoise().get(name, shape);
    }
    return c;
  }
  tensor::Tensor latent(int batch, const nn::TokenLayout& l) const {
    return NamedNoise().get("latent", {batch * l.tokens(), l.token_channels()});
  }
  tensor::Tensor operator()(const nn::Conditioning& c, int batch, const nn::TokenLayout& layout,
                            const tensor::Tensor& latent) const {
    const nn::TokenShape shape{batch, spec.prefix(c), layout.grid(), layout.extra};
    nn::TokenView view;
    for (int r = 0; r < batch; ++r) {
      view.sequences.push_back(r);
      if (shape.prefix > 0) view.prefix.push_back({r, {-shape.prefix, 0}});
      view.body.push_back({r, {0, shape.tokens()}});
    }
    const auto context = network->prepare(c, shape);
    tensor::Tensor time = tensor::Tensor::empty({batch}, tensor::DType::f32, latent.device());
    for (int r = 0; r < batch && !time.is_meta(); ++r) time.data<float>()[r] = 400;
    const auto step = network->at(*context, time);
    const auto placement = network->place(*context, view);
    nn::LocalAttention attention(network->geometry());
    nn::MoeLayers experts;
    nn::Hidden hidden = network->embed(*placement, latent);
    for (int b = 0; b < network->geometry().blocks; ++b)
      network->block(b, *step, *placement, hidden, {attention, experts});
    return network->head(*step, *placement, hidden);
  }
};

/// The second of two sequences gives the same result as alone, bit by bit.
inline void expect_sequences_apart(const TinyModel& model, int64_t text,
                                   const nn::TokenLayout& layout) {
  const nn::Conditioning both = model.conditioning(2, text);
  nn::Conditioning second;
  for (const auto& [name, x] : both.tensors) second.tensors[name] = x.slice(0, 1, 2).contiguous();
  const tensor::Tensor latent = model.latent(2, layout);
  const int64_t n = layout.tokens();
  const tensor::Tensor out = model(both, 2, layout, latent);
  EXPECT_EQ(out.slice(0, n, 2 * n).to_floats(),
            model(second, 1, layout, latent.slice(0, n, 2 * n).contiguous()).to_floats());
}

/// The model runs on meta: shapes, and counted work.
inline void expect_runs_on_meta(const char* type, const char* config, int64_t height,
                                int64_t width) {
  const TinyModel model(type, config, tensor::Device::meta, tensor::DType::bf16);
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const nn::TokenLayout layout = model.spec.layout(height, width);
  const tensor::Tensor out =
      model(model.spec.example(2), 2, layout,
            tensor::Tensor::empty({2 * layout.tokens(), layout.token_channels()},
                                  tensor::DType::f32, tensor::Device::meta));
  EXPECT_TRUE(out.is_meta());
  EXPECT_EQ(out.size(0), 2 * layout.tokens());
  EXPECT_GT(scope.meter->total().flops, 1e5);
}

/// The refusal of a configuration.
inline std::string spec_refusal(const char* type, const char* config) {
  try {
    pipeline_of(type, {base::Json::parse(config), "config.json"});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "nothing was refused";
}

/// The message of a call's Error(usage).
inline std::string usage_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "nothing was refused";
}

}  // namespace tessera::models
