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
  EXPECT_EQ(relu(of({-1, 2, 0, -3}, {1, 2, 1, 2})).to_floats(), (std::vector<float>{0, 2, 0, 0}));
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

TEST(Elementwise, RowsRepeatWhileTheyFit) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const auto row = [](const std::vector<float>& values) {
    return Tensor::from(std::span<const float>(values), {static_cast<int64_t>(values.size())});
  };
  EXPECT_EQ(add_row(x, row({10, 20})).to_floats(), (std::vector<float>{11, 22, 13, 24}));
  EXPECT_EQ(add_row(x, row({1, 2, 3, 4})).to_floats(), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_THROW(add_row(x, row({1, 2, 3})), Error);
  EXPECT_TRUE(add_row(Tensor::empty({2, 2}, DType::f32, tensor::Device::meta), row({1})).is_meta());
}

TEST(Elementwise, ARowMultipliesEachRow) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const auto row = [](const std::vector<float>& values) {
    return Tensor::from(std::span<const float>(values), {static_cast<int64_t>(values.size())});
  };
  EXPECT_EQ(multiply_row(x, row({1, 10, -1})).to_floats(),
            (std::vector<float>{1, 20, -3, 4, 50, -6}));
  EXPECT_EQ(multiply_row(x.slice(1, 1, 3), row({2, 3})).to_floats(),
            (std::vector<float>{4, 9, 10, 18}))
      << "a view of columns";
  EXPECT_EQ(multiply_row(cast(x, DType::bf16), row({2, 2, 2})).dtype(), DType::bf16);
  EXPECT_THROW(multiply_row(x, row({1, 2})), Error);
  EXPECT_EQ(multiply_row(Tensor::empty({0, 3}, DType::f32), row({1, 2, 3})).size(0), 0);
  EXPECT_TRUE(
      multiply_row(Tensor::empty({2, 1}, DType::f32, tensor::Device::meta), row({1})).is_meta());
}

TEST(Elementwise, ScaleRoundsTwice) {
  const float x = 0.1234567f;
  EXPECT_EQ(scale(of({x}, {1}), 1000, 1000).to_floats()[0], x / 1000.0f * 1000.0f);
  EXPECT_EQ(scale(of({x}, {1}), 3).to_floats()[0], x * 3);
}

TEST(Elementwise, RowsMoveToTheirPlaces) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor y = Tensor::from(std::vector<float>(12, 9), {4, 3});
  const std::vector<int32_t> from{2, -1}, to{3, 0}, outside{4, 0}, three{0, 1, 2};
  move_rows(x, from, y.slice(1, 1, 3), to);
  EXPECT_EQ(y.to_floats(), (std::vector<float>{9, 0, 0, 9, 9, 9, 9, 9, 9, 9, 5, 6}));
  move_rows(x, {}, y.slice(1, 0, 2), three);
  EXPECT_EQ(y.row<float>(2)[1], 6);
  EXPECT_THROW(move_rows(x, from, y.slice(1, 1, 3), outside), Error);
  EXPECT_THROW(move_rows(x, outside, y.slice(1, 1, 3), to), Error);
  EXPECT_THROW(move_rows(x, from, y, to), Error);
  EXPECT_THROW(move_rows(x, three, y.slice(1, 1, 3), to), Error);
}

}  // namespace
}  // namespace tessera::ops
