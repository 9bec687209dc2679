#include "nn/latent_form.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

Tensor counted(const tensor::Shape& shape) {
  Tensor x = Tensor::empty(shape, tensor::DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i);
  return x;
}

TEST(LatentForm, EveryFormComesBackFromTokens) {
  const TokenLayout layout{.channels = 3, .size = {2, 4, 6}, .patch = {1, 2, 2}};
  const TokenLayout image{.channels = 3, .size = {1, 4, 6}, .patch = {1, 2, 2}};
  for (const auto& [form, l] : {std::pair{LatentForm::image, image},
                                {LatentForm::packed, image},
                                {LatentForm::video, layout}}) {
    const Tensor latent = counted(latent_shape(l, form, 2));
    const Tensor tokens = tokens_of_latent(latent, l, form);
    EXPECT_EQ(tokens.shape(), (tensor::Shape{2 * l.tokens(), l.token_channels()}));
    EXPECT_EQ(latent_of_tokens(tokens, l, form).to_floats(), latent.to_floats());
  }
}

TEST(LatentForm, PackedTokensArePatchesWithTheChannelSlowest) {
  const TokenLayout l{.channels = 1, .size = {1, 2, 4}, .patch = {1, 2, 2}};
  const Tensor tokens = tokens_of_latent(counted({1, 1, 2, 4}), l, LatentForm::image);
  EXPECT_EQ(tokens.to_floats(), (std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(latent_of_tokens(tokens, l, LatentForm::packed).to_floats(), tokens.to_floats());
}

TEST(LatentForm, PatchesAreChannels) {
  const TokenLayout l{.channels = 1, .size = {1, 2, 4}, .patch = {1, 2, 2}, .extra = 1};
  const Tensor latent = counted({1, 4, 1, 2});
  EXPECT_EQ(latent_shape(l, LatentForm::patches, 1), latent.shape());
  const Tensor tokens = tokens_of_latent(latent, l, LatentForm::patches);
  EXPECT_EQ(tokens.to_floats(), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7, 0, 0, 0, 0}));
  EXPECT_EQ(latent_of_tokens(tokens, l, LatentForm::patches).to_floats(), latent.to_floats());
}

TEST(LatentForm, FramesAndChannelsChangePlaces) {
  EXPECT_EQ(swap_frames(counted({1, 2, 3, 1, 1})).to_floats(),
            (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(LatentForm, SaysWhatFits) {
  const TokenLayout l{.channels = 1, .size = {1, 2, 4}, .patch = {1, 2, 2}};
  EXPECT_THROW(tokens_of_latent(counted({1, 1, 2, 2}), l, LatentForm::image), Error);
}

}  // namespace
}  // namespace tessera::nn
