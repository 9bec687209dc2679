#include "ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

Tensor of(std::vector<float> values, const tensor::Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}

TEST(LayerNorm, NormalisesEachRunOfChannels) {
  const Tensor x = of({1, 3, 10, 20}, {1, 4});
  const auto y = layer_norm(x, {.width = 2, .eps = 0}).to_floats();
  EXPECT_FLOAT_EQ(y[0], -1);
  EXPECT_FLOAT_EQ(y[1], 1);
  EXPECT_FLOAT_EQ(y[2], -1);
  EXPECT_FLOAT_EQ(rms_norm(of({3, 4}, {1, 2}), {.eps = 0}).to_floats()[0], 3 / std::sqrt(12.5f));
}

TEST(LayerNorm, ReadsViews) {
  const Tensor wide = of({9, 1, 3, 9, 9, 5, 7, 9}, {2, 4});
  EXPECT_EQ(layer_norm(wide.slice(1, 1, 3), {.eps = 0}).to_floats(),
            (std::vector<float>{-1, 1, -1, 1}));
}

TEST(LayerNorm, OnMetaHasShapeAndCounts) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const Tensor y = layer_norm(Tensor::empty({7, 8}, DType::bf16, tensor::Device::meta));
  EXPECT_EQ(y.shape(), (tensor::Shape{7, 8}));
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(scope.meter->total().calls, 1);
}

TEST(LayerNorm, WritesWhereTheCallerSays) {
  const Tensor x = of({1, 2, 3, 4, 7, 5}, {3, 2}), both = Tensor::zeros({5, 4}, DType::f32);
  const Tensor view = both.slice(0, 1, 4).slice(1, 1, 3);
  EXPECT_EQ(layer_norm(x, {.into = view}).raw(), view.raw());
  EXPECT_EQ(view.to_floats(), layer_norm(x).to_floats());
  EXPECT_EQ(both.slice(1, 0, 1).to_floats(), std::vector<float>(5));
  EXPECT_THROW(layer_norm(x, {.into = both}), Error);
}

TEST(LayerNorm, RefusesWhatDoesNotFit) {
  const Tensor x = of({1, 2, 3, 4}, {2, 2});
  EXPECT_THROW(layer_norm(x, {.width = 3}), Error);
  EXPECT_THROW(layer_norm(x, {.weight = of({1}, {1})}), Error);
  EXPECT_THROW(layer_norm(x, {.shift = of({1, 2, 3}, {1, 3})}), Error);
  const std::vector<int32_t> outside{0, 1}, short_list{0};
  EXPECT_THROW(layer_norm(x, {.shift = of({1, 2}, {1, 2}), .row_of = outside}), Error);
  EXPECT_THROW(layer_norm(x, {.shift = of({1, 2}, {1, 2}), .row_of = short_list}), Error);
  EXPECT_THROW(rms_norm(x.reshape({4})), Error);
}

}  // namespace
}  // namespace tessera::ops
