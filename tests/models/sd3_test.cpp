#include "models/sd3.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "SD3Transformer2DModel";
constexpr const char* kConfig =
    R"({"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 3, "in_channels": 4,
  "out_channels": 4, "caption_projection_dim": 16, "joint_attention_dim": 10, "pooled_projection_dim": 6,
  "pos_embed_max_size": 8, "qk_norm": "rms_norm", "dual_attention_layers": [0]})";

TEST(Sd3, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 5, model.spec.layout(4, 6));
}

TEST(Sd3, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(Sd3, RefusesAnImageBeyondItsPositions) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(18, 4);
  const std::string says =
      usage_error([&] { model(model.conditioning(1, 5), 1, layout, model.latent(1, layout)); });
  EXPECT_NE(says.find("8 x 8"), std::string::npos) << says;
}

TEST(Sd3, ASecondAttentionHasASiteOfItsOwn) {
  const TinyModel model(kType, kConfig);
  const nn::Geometry& g = model.network->geometry();
  ASSERT_EQ(g.attention.size(), 4u);
  EXPECT_TRUE(g.attention[0].joint);
  EXPECT_FALSE(g.attention[1].joint);
  EXPECT_EQ(g.attention[1].block, 0);
  EXPECT_FALSE(g.attention[3].prefix_queries);
}

}  // namespace
}  // namespace tessera::models
