#include "models/reference_tokens.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::models {
namespace {

Tensor floats(const tensor::Shape& shape) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i + 1);
  return x;
}

// Two sequences of four latent tokens, and three of a reference.
nn::TokenShape shape() {
  nn::TokenShape shape;
  shape.batch = 2;
  shape.grid = {1, 2, 2};
  shape.extra = 3;
  return shape;
}

nn::Conditioning conditioning(int64_t tokens, std::vector<int32_t> sizes) {
  nn::Conditioning c;
  c.tensors["reference_tokens"] = floats({2, tokens, 2});
  c.tensors["reference_sizes"] = Tensor::from(std::span<const int32_t>(sizes), {2, 2});
  return c;
}

TEST(ReferenceTokens, AreReadAndChecked) {
  const References found = references_of(conditioning(3, {1, 3, 1, 3}), shape(), 2);
  EXPECT_EQ(found.sizes, (std::vector<std::array<int64_t, 2>>{{1, 3}}));
  EXPECT_EQ(found.tokens.shape(), (tensor::Shape{6, 2}));
  EXPECT_THROW(references_of(conditioning(2, {1, 3, 1, 3}), shape(), 2), Error);
  EXPECT_THROW(references_of(conditioning(3, {2, 2, 2, 2}), shape(), 2), Error);
  nn::TokenShape none = shape();
  none.extra = 0;
  EXPECT_TRUE(references_of({}, none, 2).sizes.empty());
}

TEST(ReferenceTokens, StandInTheirRowsAndArePredictedAsZero) {
  // The second sequence, from its last latent token on.
  const ReferenceRows rows = reference_rows(shape(), {{1, {3, 7}}});
  EXPECT_EQ(rows.at, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(rows.from, (std::vector<int32_t>{3, 4, 5}));
  const Tensor latent = Tensor::zeros({4, 2}, DType::f32), tokens = floats({6, 2});
  const Tensor both = with_references(latent, tokens, rows);
  EXPECT_EQ(both.to_floats(), (std::vector<float>{0, 0, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(latent.to_floats()[2], 0) << "written in place";
  clear_references(both, rows);
  EXPECT_EQ(both.to_floats(), std::vector<float>(8, 0));
  EXPECT_EQ(with_references(latent, tokens, {}).raw(), latent.raw());
}

}  // namespace
}  // namespace tessera::models
