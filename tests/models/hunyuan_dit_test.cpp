#include "models/hunyuan_dit.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "HunyuanDiT2DModel";
constexpr const char* kConfig =
    R"({"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 4, "in_channels": 4,
  "patch_size": 2, "cross_attention_dim": 10, "cross_attention_dim_t5": 16, "pooled_projection_dim": 6,
  "text_len": 3, "text_len_t5": 5})";

TEST(HunyuanDit, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 0, model.spec.layout(4, 6));
}

TEST(HunyuanDit, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(HunyuanDit, LongSkipsArePaired) {
  const TinyModel model(kType, kConfig);
  EXPECT_EQ(model.network->geometry().skip_from, (std::vector<int>{-1, -1, -1, 0}));
}

TEST(HunyuanDit, PaddingHasLearnedValues) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  nn::Conditioning c = model.conditioning(1, 0);
  const std::vector<int32_t> mask{1, 0, 0};
  c.tensors["text_embedding_mask"] = nn::Tensor::from(std::span<const int32_t>(mask), {1, 3});
  const auto masked = model(c, 1, layout, model.latent(1, layout));
  const std::vector<float> floats{1, 0, 0};
  c.tensors["text_embedding_mask"] = nn::Tensor::from(std::span<const float>(floats), {1, 3});
  EXPECT_EQ(masked.to_floats(), model(c, 1, layout, model.latent(1, layout)).to_floats());
  c.tensors["text_embedding_mask"] = nn::Tensor::from(std::span<const int32_t>(mask), {1, 3});
  nn::Tensor other = NamedNoise().get("other", {1, 3, 10});
  std::copy_n(c.tensors["encoder_hidden_states"].data<float>(), 10, other.data<float>());
  c.tensors["encoder_hidden_states"] = other;
  EXPECT_EQ(masked.to_floats(), model(c, 1, layout, model.latent(1, layout)).to_floats());
  c.tensors.erase("text_embedding_mask");
  EXPECT_NE(masked.to_floats(), model(c, 1, layout, model.latent(1, layout)).to_floats());
}

}  // namespace
}  // namespace tessera::models
