#include "models/pixart.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "PixArtTransformer2DModel";
constexpr const char* kConfig =
    R"({"num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 2, "sample_size": 128,
  "cross_attention_dim": 24, "caption_channels": 10})";

TEST(Pixart, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 6, model.spec.layout(4, 6));
}

TEST(Pixart, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(Pixart, PaddingOfTheTextChangesNothing) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  nn::Conditioning c = model.conditioning(1, 6);
  const std::vector<int32_t> mask{1, 1, 1, 1, 0, 0};
  c.tensors["encoder_attention_mask"] = nn::Tensor::from(std::span<const int32_t>(mask), {1, 6});
  const auto masked = model(c, 1, layout, model.latent(1, layout));
  nn::Conditioning cut = c;
  cut.tensors.erase("encoder_attention_mask");
  cut.tensors["encoder_hidden_states"] =
      c.tensors["encoder_hidden_states"].slice(1, 0, 4).contiguous();
  EXPECT_EQ(masked.to_floats(), model(cut, 1, layout, model.latent(1, layout)).to_floats());
}

TEST(Pixart, SaysWhichConditionIsMissing) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  nn::Conditioning c = model.conditioning(1, 6);
  c.tensors.erase("resolution");
  const std::string says = usage_error([&] { model(c, 1, layout, model.latent(1, layout)); });
  EXPECT_NE(says.find("'resolution' [1, 2]"), std::string::npos) << says;
}

}  // namespace
}  // namespace tessera::models
