#include "models/z_image.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

using tensor::Tensor;

constexpr const char* kType = "ZImageTransformer2DModel";
constexpr const char* kConfig =
    R"({"dim": 24, "n_heads": 2, "n_layers": 2, "n_refiner_layers": 1, "in_channels": 4,
  "cap_feat_dim": 10, "axes_dims": [4, 4, 4], "axes_lens": [600, 64, 64]})";

TEST(ZImage, ARowDoesNotDependOnTheOthers) {
  const TinyModel model(kType, kConfig);
  expect_sequences_apart(model, 5, model.spec.layout(4, 6));
}

TEST(ZImage, RunsOnMetaWithShapesAlone) { expect_runs_on_meta(kType, kConfig, 4, 6); }

TEST(ZImage, FillsUpImagesAndTexts) {
  const TinyModel model(kType, kConfig);
  EXPECT_EQ(model.spec.layout(4, 6).extra, 26);
  EXPECT_EQ(model.spec.layout(16, 16).extra, 0);
  EXPECT_EQ(model.spec.prefix(model.conditioning(1, 33)), 64);
}

// A mask with a shorter length equals a shorter text.
TEST(ZImage, WhatTheMaskLeavesOutIsNotThere) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  nn::Conditioning longer = model.conditioning(1, 40), shorter;
  shorter.tensors["cap_feats"] = longer.tensors["cap_feats"].slice(1, 0, 7).contiguous();
  Tensor mask = Tensor::zeros({1, 40}, tensor::DType::i32);
  std::fill_n(mask.data<int32_t>(), 7, 1);
  const Tensor latent = model.latent(1, layout);
  const auto whole = model(longer, 1, layout, latent).to_floats();
  longer.tensors["cap_feats_mask"] = mask;
  EXPECT_EQ(model.spec.prefixes(longer), (std::vector<int64_t>{32}));
  const auto told = model(longer, 1, layout, latent).to_floats();
  EXPECT_EQ(told, model(shorter, 1, layout, latent).to_floats());
  EXPECT_NE(told, whole);
}

TEST(ZImage, WhatFillsAnImageUpIsNotDenoised) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  const Tensor latent = model.latent(1, layout),
               zeros = nn::with_extra(nn::without_extra(latent, layout), layout);
  const nn::Conditioning c = model.conditioning(1, 5);
  const Tensor out = model(c, 1, layout, latent);
  EXPECT_EQ(out.to_floats(), model(c, 1, layout, zeros).to_floats()) << "its latent is not read";
  for (const float value : out.slice(0, 6, 32).contiguous().to_floats()) ASSERT_EQ(value, 0);
}

TEST(ZImage, RefusesMoreThanItHasPositionsFor) {
  const TinyModel model(kType, kConfig);
  const nn::TokenLayout layout = model.spec.layout(4, 6);
  const nn::Conditioning c = model.conditioning(1, 600);
  EXPECT_NE(usage_error([&] { model(c, 1, layout, model.latent(1, layout)); }).find("positions"),
            std::string::npos);
}

TEST(ZImage, NamesItsTwoKindsOfBlocks) {
  const TinyModel model(kType, kConfig);
  EXPECT_EQ(model.network->block_name(0), "noise_refiner.0");
  EXPECT_EQ(model.network->block_name(2), "block.1");
}

}  // namespace
}  // namespace tessera::models
