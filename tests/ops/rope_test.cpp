#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

TEST(Rope, PositionZeroStaysAndPositionOneTurnsByTheFrequencies) {
  const std::vector<int64_t> positions{0, 1};
  const RotaryTable table = rotary_table(positions, 2, 100.0);
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 1, 0, 0, 1}, {2, 4});
  const std::vector<float> y = rope(x, table, 4).to_floats();
  EXPECT_EQ((std::vector<float>{y[0], y[1], y[2], y[3]}), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_NEAR(y[4], std::cos(1.0), 1e-6);  // pair (0, 2), frequency 1
  EXPECT_NEAR(y[6], std::sin(1.0), 1e-6);
  EXPECT_NEAR(y[5], -std::sin(0.1), 1e-6);  // pair (1, 3), frequency 100^(-1/2)
  EXPECT_NEAR(y[7], std::cos(0.1), 1e-6);
}

TEST(Rope, ChannelsBehindThePairsStay) {
  const std::vector<int64_t> positions{3};
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 7, 8}, {1, 4});
  const auto y = rope(x, rotary_table(positions, 1, 10.0), 4).to_floats();
  EXPECT_NE(y[0], 1);
  EXPECT_EQ(y[2], 7);
  EXPECT_EQ(y[3], 8);
}

TEST(Rope, WritesWhereTheCallerSays) {
  const std::vector<int64_t> positions{3, 5};
  const RotaryTable table = rotary_table(positions, 2, 10.0);
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 7, 8, 5, 4, 3, 2}, {2, 4});
  const Tensor both = Tensor::zeros({3, 6}, DType::f32), view = both.slice(0, 1, 3).slice(1, 2, 6);
  EXPECT_EQ(rope(x, table, 4, RotaryPairs::neighbours, view).raw(), view.raw());
  EXPECT_EQ(view.to_floats(), rope(x, table, 4, RotaryPairs::neighbours).to_floats());
  EXPECT_EQ(both.slice(1, 0, 2).to_floats(), std::vector<float>(6));
}

TEST(Rope, TakesNoTokensAndMeta) {
  const Tensor none = Tensor::empty({0, 8}, DType::bf16);
  EXPECT_EQ(rope(none, rotary_table({}, 4, 1e4), 8).shape(), (tensor::Shape{0, 8}));
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const std::vector<int64_t> positions{0, 1, 2};
  const Tensor x = Tensor::empty({3, 16}, DType::bf16, tensor::Device::meta);
  EXPECT_TRUE(rope(x, rotary_table(positions, 4, 1e4, tensor::Device::meta), 8).is_meta());
  EXPECT_GT(scope.meter->entries().at("rope").flops, 0);
}

TEST(Rope, RefusesATableOfAnotherSize) {
  const std::vector<int64_t> positions{0, 1};
  const Tensor x = Tensor::zeros({3, 8}, DType::f32);
  EXPECT_THROW(rope(x, rotary_table(positions, 4, 1e4), 8), Error);
  const std::vector<int64_t> three{0, 1, 2};
  EXPECT_THROW(rope(x, rotary_table(three, 5, 1e4), 8), Error);
  EXPECT_THROW(rotary_table(three, 0, 1e4), Error);
}

}  // namespace
}  // namespace tessera::ops
