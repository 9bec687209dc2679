#include "models/flux.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "FluxTransformer2DModel";
constexpr const char* kConfig =
    R"({"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 1, "num_single_layers": 2,
  "in_channels": 16, "joint_attention_dim": 10, "pooled_projection_dim": 6, "axes_dims_rope": [4, 4, 4],
  "guidance_embeds": true})";

TEST(Flux, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 5, model.spec.layout(4, 6));
}

TEST(Flux, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(Flux, GuidanceIsAnInput) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  nn::Conditioning c = model.conditioning(1, 5);
  const auto one = model(c, 1, layout, model.latent(1, layout));
  c.tensors["guidance"] = nn::Tensor::zeros({1}, nn::DType::f32);
  EXPECT_NE(one.to_floats(), model(c, 1, layout, model.latent(1, layout)).to_floats());
  c.tensors.erase("guidance");
  EXPECT_NE(usage_error([&] { model(c, 1, layout, model.latent(1, layout)); }).find("'guidance'"),
            std::string::npos);
}

TEST(Flux, NamesItsTwoKindsOfBlocks) {
  const TinyModel model(kType, kConfig);
  EXPECT_EQ(model.network->block_name(0), "block.0");
  EXPECT_EQ(model.network->block_name(2), "single_block.1");
}

}  // namespace
}  // namespace tessera::models
