#include "nn/token_layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

Tensor counting(const tensor::Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(std::span<const float>(values), shape);
}

TEST(TokenLayout, PixelsGoWhereThePatchSays) {
  const TokenLayout layout{.channels = 2, .size = {1, 4, 6}, .patch = {1, 2, 3}};
  const Tensor tokens = to_tokens(counting({1, 2, 4, 6}), layout);
  ASSERT_EQ(tokens.shape(), (tensor::Shape{4, 12}));
  // Token 3: lines 2-3, columns 3-5. Channel 1 starts behind the six of channel 0.
  const auto values = tokens.slice(0, 3, 4).to_floats();
  EXPECT_EQ(values[0], 2 * 6 + 3);
  EXPECT_EQ(values[5], 3 * 6 + 5);
  EXPECT_EQ(values[6], 24 + 2 * 6 + 3);
}

TEST(TokenLayout, BackAndForthIsTheSame) {
  const TokenLayout image{.channels = 4, .size = {1, 6, 10}, .patch = {1, 2, 2}};
  const Tensor x = counting({3, 4, 6, 10});
  EXPECT_EQ(from_tokens(to_tokens(x, image), image, false).to_floats(), x.to_floats());
  const TokenLayout video{.channels = 3, .size = {4, 4, 6}, .patch = {2, 2, 3}};
  const Tensor y = counting({2, 3, 4, 4, 6});
  EXPECT_EQ(from_tokens(to_tokens(y, video), video, true).to_floats(), y.to_floats());
}

TEST(TokenLayout, TokensBehindTheLatentAreZerosAndLeaveItAsItWas) {
  const TokenLayout layout{.channels = 2, .size = {1, 2, 4}, .patch = {1, 2, 2}, .extra = 3};
  EXPECT_EQ(layout.tokens(), 5);
  EXPECT_EQ(layout.latent_tokens(), 2);
  const Tensor x = counting({2, 2, 2, 4});
  const Tensor tokens = to_tokens(x, layout);
  EXPECT_EQ(tokens.shape(), (tensor::Shape{10, 8}));
  for (const float value : tokens.slice(0, 2, 5).contiguous().to_floats()) EXPECT_EQ(value, 0);
  EXPECT_NE(tokens.slice(0, 5, 7).contiguous().to_floats(), std::vector<float>(16, 0));
  EXPECT_EQ(from_tokens(tokens, layout, false).to_floats(), x.to_floats());
}

TEST(TokenLayout, RefusesSizesThatDoNotFitThePatch) {
  const TokenLayout layout{.channels = 2, .size = {1, 5, 6}, .patch = {1, 2, 2}};
  EXPECT_THROW(to_tokens(counting({1, 2, 5, 6}), layout), Error);
}

TEST(TokenLayout, ChannelsBecomeSlowest) {
  const Tensor rows = counting({6, 2});  // 3 pixels of 2 channels
  const auto values = channel_slowest(rows, 3, 2).to_floats();
  EXPECT_EQ(values, (std::vector<float>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
}

}  // namespace
}  // namespace tessera::nn
