#include "models/flux2.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

using tensor::Tensor;

constexpr const char* kType = "Flux2Transformer2DModel";
constexpr const char* kConfig =
    R"({"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "num_single_layers": 2,
  "in_channels": 16, "joint_attention_dim": 10, "timestep_guidance_channels": 32,
  "axes_dims_rope": [2, 2, 2, 2], "guidance_embeds": false})";

nn::Conditioning with_reference(const TinyModel& model, int32_t lines, int32_t columns) {
  nn::Conditioning c = model.conditioning(1, 5);
  const int32_t sides[] = {lines, columns};
  c.tensors["reference_sizes"] = Tensor::from(std::span<const int32_t>(sides), {1, 2});
  c.tensors["reference_tokens"] = NamedNoise().get("reference", {1, lines * columns, 16});
  return c;
}

TEST(Flux2, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 5, model.spec.layout(4, 6));
}

TEST(Flux2, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(Flux2, ReferencesChangeThePredictionAndHaveNone) {
  const TinyModel model(kType, kConfig);
  nn::TokenLayout layout = model.spec.layout(4, 6);
  const Tensor latent = model.latent(1, layout);
  const auto alone = model(model.conditioning(1, 5), 1, layout, latent).to_floats();
  nn::TokenLayout more = layout;
  more.extra = 6;
  const Tensor filled = nn::with_extra(latent, more);
  const Tensor wide = model(with_reference(model, 2, 3), 1, more, filled);
  const auto beside = nn::without_extra(wide, more).to_floats();
  EXPECT_NE(beside, alone);
  EXPECT_NE(
      beside,
      nn::without_extra(model(with_reference(model, 3, 2), 1, more, filled), more).to_floats())
      << "places are told";
  for (const float value : wide.slice(0, 6, 12).contiguous().to_floats()) ASSERT_EQ(value, 0);
}

TEST(Flux2, NamesReferencesThatDoNotFit) {
  const TinyModel model(kType, kConfig);
  nn::TokenLayout layout = model.spec.layout(4, 6);
  layout.extra = 5;
  const Tensor latent = model.latent(1, layout);
  const auto refusal = [&](const nn::Conditioning& c) {
    return usage_error([&] { model(c, 1, layout, latent); });
  };
  EXPECT_NE(refusal(model.conditioning(1, 5)).find("'reference_tokens'"), std::string::npos);
  EXPECT_NE(refusal(with_reference(model, 2, 3)).find("6 tokens"), std::string::npos);
}

TEST(Flux2, NamesItsTwoKindsOfBlocks) {
  const TinyModel model(kType, kConfig);
  EXPECT_EQ(model.network->block_name(0), "block.0");
  EXPECT_EQ(model.network->block_name(2), "single_block.1");
}

}  // namespace
}  // namespace tessera::models
