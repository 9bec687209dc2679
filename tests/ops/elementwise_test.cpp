#include "ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

Tensor of(std::vector<float> values, const tensor::Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}

TEST(ElementwiseOps, CastsRoundAndReturnTheSameWhenThereIsNothingToDo) {
  const Tensor x = of({1, 1.00390625f}, {2});
  EXPECT_EQ(cast(x, DType::f32).raw(), x.raw());
  EXPECT_EQ(cast(x, DType::bf16).to_floats(), (std::vector<float>{1, 1}));
}

TEST(ElementwiseOps, AddBlendGate) {
  const Tensor a = of({1, 2, 3, 4}, {2, 2}), b = of({10, 20, 30, 40}, {2, 2});
  EXPECT_EQ(add(a, b).to_floats(), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(blend(a, 2, b, -1).to_floats(), (std::vector<float>{-8, -16, -24, -32}));
  EXPECT_EQ(multiply(a, b).to_floats(), (std::vector<float>{10, 40, 90, 160}));
  const std::vector<int32_t> rows{1, 0};
  EXPECT_EQ(add_gated(a, b, of({1, 2, 3, 4}, {2, 2}), rows).to_floats(),
            (std::vector<float>{31, 82, 33, 84}));
  EXPECT_EQ(add(a.slice(1, 0, 1), b.slice(1, 1, 2)).to_floats(), (std::vector<float>{21, 43}));
}

TEST(ElementwiseOps, GathersRowsAndRefusesOthers) {
  const Tensor table = of({1, 2, 3, 4}, {2, 2});
  const std::vector<int32_t> ids{1, 1, 0}, outside{2};
  EXPECT_EQ(gather_rows(table, ids, DType::f32).to_floats(),
            (std::vector<float>{3, 4, 3, 4, 1, 2}));
  EXPECT_EQ(gather_rows(table, {}, DType::f32).size(0), 0);
  EXPECT_THROW(gather_rows(table, outside, DType::f32), Error);
}

TEST(ElementwiseOps, ConcatenatesRowsAndColumns) {
  const Tensor a = of({1, 2}, {1, 2}), b = of({3, 4, 5, 6}, {2, 2});
  EXPECT_EQ(concat_rows({a, b}).to_floats(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(concat_columns({b, b.slice(1, 1, 2)}).to_floats(),
            (std::vector<float>{3, 4, 4, 5, 6, 6}));
  EXPECT_THROW(concat_rows({a, of({1}, {1, 1})}), Error);
  EXPECT_THROW(concat_rows({}), Error);
}

TEST(ElementwiseOps, TimestepsAreCosinesThenSines) {
  const auto e = timestep_embedding(of({2}, {1}), 4).to_floats();
  EXPECT_FLOAT_EQ(e[0], std::cos(2.0f));
  EXPECT_FLOAT_EQ(e[1], std::cos(0.02f));
  EXPECT_FLOAT_EQ(e[2], std::sin(2.0f));
  EXPECT_FLOAT_EQ(timestep_embedding(of({2}, {1}), 4, {.sin_first = true}).to_floats()[0],
                  std::sin(2.0f));
}

TEST(ElementwiseOps, MetaKeepsShapes) {
  const Tensor x = Tensor::empty({3, 4}, DType::bf16, tensor::Device::meta);
  EXPECT_EQ(swiglu(x, x).shape(), x.shape());
  EXPECT_EQ(concat_columns({x, x}).size(1), 8);
  EXPECT_THROW(add(x, Tensor::empty({3, 5}, DType::bf16, tensor::Device::meta)), Error);
}

}  // namespace
}  // namespace tessera::ops
