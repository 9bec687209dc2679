#include "models/cogvideox.h"

#include <set>

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "CogVideoXTransformer3DModel";
constexpr const char* kConfig =
    R"({"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "in_channels": 4,
  "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": 10, "use_rotary_positional_embeddings": true})";

TEST(CogVideoX, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 5, model.spec.layout(4, 6, 3));
}

TEST(CogVideoX, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(CogVideoX, PatchesMayHoldFrames) {
  std::string config = kConfig;
  config.insert(1, "\"patch_size_t\": 2, ");
  const TinyModel model(kType, config.c_str());
  const nn::TokenLayout layout = model.spec.layout(4, 6, 4);
  EXPECT_EQ(layout.tokens(), 12);
  const auto out = model(model.conditioning(1, 5), 1, layout, model.latent(1, layout));
  EXPECT_EQ(out.shape(), (tensor::Shape{12, 4 * 8}));
}

bool has_patch_bias(const char* more) {
  std::string config = kConfig;
  config.insert(1, more);
  struct Names : NamedNoise {
    mutable std::set<std::string> asked;
    tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
      asked.insert(name);
      return NamedNoise::stored(name, shape);
    }
  } names;
  const auto spec = pipeline_of(kType, {base::Json::parse(config), "config.json"});
  spec.make(names, spec.whole(), tensor::DType::f32);
  return names.asked.contains("patch_embed.proj.bias");
}

TEST(CogVideoX, TheFlagOfThePatchBiasIsThatOfVersionOneAlone) {
  EXPECT_TRUE(has_patch_bias(""));
  EXPECT_FALSE(has_patch_bias("\"patch_bias\": false, "));
  EXPECT_TRUE(has_patch_bias("\"patch_bias\": false, \"patch_size_t\": 2, "));
}

TEST(CogVideoX, PositionsMayBeAdded) {
  std::string config = kConfig;
  config.replace(config.find("true"), 4, "false");
  const TinyModel model(kType, config.c_str());
  const nn::TokenLayout layout = model.spec.layout(4, 6, 2);
  const auto out = model(model.conditioning(1, 5), 1, layout, model.latent(1, layout));
  EXPECT_EQ(out.shape(), (tensor::Shape{12, 16}));
}

}  // namespace
}  // namespace tessera::models
