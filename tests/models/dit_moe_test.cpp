#include "models/dit_moe.h"

#include <gtest/gtest.h>

#include "models/named_noise.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "ops/elementwise.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

DitMoeConfig tiny() {
  DitMoeConfig c;
  c.hidden_size = 32;
  c.depth = 2;
  c.num_heads = 2;
  c.input_size = 8;
  c.num_experts = 4;
  c.num_classes = 5;
  return c;
}

nn::Portion whole(const DitMoeConfig& c) { return {{0, c.depth}, true, true}; }

Tensor run(const DitMoe& model, const std::vector<int32_t>& labels, const nn::TokenShape& shape,
           const Tensor& latent) {
  nn::Conditioning conditioning;
  conditioning.tensors["y"] =
      Tensor::from(std::span<const int32_t>(labels), {static_cast<int64_t>(labels.size())});
  const auto context = model.prepare(conditioning, shape);
  const std::vector<float> times(labels.size(), 0.5f);
  const Tensor time = latent.is_meta()
                          ? Tensor::empty({shape.batch}, DType::f32, tensor::Device::meta)
                          : Tensor::from(std::span<const float>(times), {shape.batch});
  const auto step = model.at(*context, time);
  nn::TokenView view;
  for (int r = 0; r < shape.batch; ++r) {
    view.sequences.push_back(r);
    view.body.push_back({r, {0, shape.tokens()}});
  }
  const auto placement = model.place(*context, view);
  nn::LocalAttention attention(model.geometry());
  nn::MoeLayers experts;
  nn::Hidden hidden = model.embed(*placement, latent);
  for (int b = 0; b < model.geometry().blocks; ++b)
    model.block(b, *step, *placement, hidden, {attention, experts});
  return model.head(*step, *placement, hidden);
}

Tensor latent_of(int64_t tokens, tensor::Device device = tensor::Device::cpu) {
  return NamedNoise(device).get("latent", {tokens, 16});
}

TEST(DitMoe, ARowDoesNotDependOnTheOthers) {
  const DitMoe model(tiny(), NamedNoise(tensor::Device::cpu), whole(tiny()), DType::f32);
  const Tensor latent = latent_of(32);
  const auto both = run(model, {1, 5}, {.batch = 2, .grid = {1, 4, 4}}, latent);
  const auto second = run(model, {5}, {.batch = 1, .grid = {1, 4, 4}}, latent.slice(0, 16, 32));
  EXPECT_EQ(both.slice(0, 16, 32).to_floats(), second.to_floats());
  EXPECT_EQ(both.shape(), (tensor::Shape{32, 32}));
}

TEST(DitMoe, TakesOtherSizesThanTheTrainedOne) {
  const DitMoe model(tiny(), NamedNoise(tensor::Device::cpu), whole(tiny()), DType::f32);
  const auto out = run(model, {0}, {.batch = 1, .grid = {1, 3, 7}}, latent_of(21));
  EXPECT_EQ(out.shape(), (tensor::Shape{21, 32}));
}

TEST(DitMoe, RunsOnMetaWithShapesAlone) {
  const DitMoe model(tiny(), NamedNoise(tensor::Device::meta), whole(tiny()), DType::bf16);
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const auto out =
      run(model, {0, 1}, {.batch = 2, .grid = {1, 4, 4}}, latent_of(32, tensor::Device::meta));
  EXPECT_TRUE(out.is_meta());
  EXPECT_GT(scope.meter->total().flops, 1e5);
}

TEST(DitMoe, NamesAClassThatDoesNotExist) {
  const DitMoe model(tiny(), NamedNoise(tensor::Device::cpu), whole(tiny()), DType::f32);
  try {
    run(model, {6}, {.batch = 1, .grid = {1, 4, 4}}, latent_of(16));
    FAIL() << "class 6 of 5 was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("class 6"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::models
