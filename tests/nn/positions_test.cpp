#include "nn/positions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/scope.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

TEST(Positions, AGridTurnsFirstByColumnThenByLine) {
  const Tensor p = sincos_grid(even_places(2), even_places(3), 8);
  EXPECT_EQ(p.shape(), (tensor::Shape{6, 8}));
  EXPECT_FLOAT_EQ(p.row<float>(5)[0], std::sin(2.0f));  // column 2
  EXPECT_FLOAT_EQ(p.row<float>(5)[4], std::sin(1.0f));  // line 1
  EXPECT_FLOAT_EQ(p.row<float>(1)[6], 1.0f);            // cosine of line 0
}

TEST(Positions, EvenPlacesMayBeScaled) {
  EXPECT_EQ(even_places(3, 1, 0.5), (std::vector<double>{1, 1.5, 2}));
}

TEST(Positions, RotaryTablesOnMetaAreTwo) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const auto table = rotary_axes({{{0, 1}, 1}, {{0, 2}, 2}}, tensor::Device::meta);
  EXPECT_TRUE(table.cos.is_meta() && table.sin.is_meta());
  EXPECT_EQ(table.sin.shape(), (tensor::Shape{2, 3}));
  EXPECT_EQ(scope.memory->current(), 2 * 2 * 3 * 4);
}

TEST(Positions, RotaryAxesStandSideBySide) {
  const auto table = rotary_axes({{{0, 1}, 1}, {{0, 2}, 2}});
  EXPECT_EQ(table.cos.shape(), (tensor::Shape{2, 3}));
  EXPECT_FLOAT_EQ(table.cos.row<float>(1)[0], std::cos(1.0f));
  EXPECT_FLOAT_EQ(table.sin.row<float>(1)[1], std::sin(2.0f));
  EXPECT_FLOAT_EQ(table.sin.row<float>(1)[2], std::sin(0.02f));
}

TEST(Positions, ARegionIsCentredAndFillsTheLongerSide) {
  const GridRegion wide = centred_region(4, 8, 32, 32);
  EXPECT_EQ(wide.top, 8);
  EXPECT_EQ(wide.bottom, 24);
  EXPECT_EQ(wide.left, 0);
  EXPECT_EQ(wide.right, 32);
  const GridRegion tall = centred_region(8, 4, 30, 45);
  EXPECT_EQ(tall.top, 0);
  EXPECT_EQ(tall.right - tall.left, 15);
}

TEST(Positions, PlacesAreSpreadAsDiffusersSpreadsThem) {
  EXPECT_EQ(spread_places(6, 27, 4), (std::vector<double>{6, 10.75, 15.5, 20.25}));
  EXPECT_EQ(spread_places(3, 9, 1), (std::vector<double>{3}));
}

TEST(Positions, TakesTheTokensOfEachRow) {
  Tensor table = Tensor::empty({6, 1}, tensor::DType::f32);
  for (int64_t i = 0; i < 6; ++i) table.data<float>()[i] = static_cast<float>(i);
  const Segments segments{{1, {1, 3}}, {0, {0, 1}}};
  EXPECT_EQ(take_tokens(table, 3, segments).to_floats(), (std::vector<float>{4, 5, 0}));
  EXPECT_EQ(take_tokens(table, 0, segments).to_floats(), (std::vector<float>{1, 2, 0}));
  const Tensor two = take_tokens(table, 3, {{0, {1, 3}}, {1, {0, 2}}});  // adjacent already: a view
  EXPECT_EQ(two.raw(), table.row<float>(1));
  EXPECT_EQ(two.shape(), (tensor::Shape{4, 1}));
  EXPECT_EQ(take_tokens(table, 3, {}).shape(), (tensor::Shape{0, 1}));
  EXPECT_EQ(take_angles({table, table}, segments).sin.to_floats(), (std::vector<float>{1, 2, 0}));
}

}  // namespace
}  // namespace tessera::nn
