#include "nn/cut_weights.h"

#include <gtest/gtest.h>

#include "nn/counting_weights.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

CutWeights weights(const Weights& whole) {
  return {whole, [](const std::string& name) -> std::optional<Cut> {
            if (name == "rows") return Cut{0, 4, {{1, 3}}};
            if (name == "columns") return Cut{1, 4, {{2, 4}}};
            if (name == "fused") return Cut{1, 6, {{1, 2}, {4, 5}}};
            return {};
          }};
}

TEST(CutWeights, TakesRangesOfOneAxisAndLeavesOthersWhole) {
  const CountingWeights whole;
  const CutWeights mine = weights(whole);
  EXPECT_EQ(mine.get("rows", {2, 2}).to_floats(), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(mine.get("columns", {2, 2}).to_floats(), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(mine.get("fused", {2, 2, 1}).to_floats(), (std::vector<float>{1, 4, 7, 10}));
  EXPECT_EQ(mine.get("other", {2}).to_floats(), (std::vector<float>{0, 1}));
  EXPECT_EQ(mine.vector("rows", 2).to_floats(), (std::vector<float>{1, 2}));
  EXPECT_FALSE(mine.has("missing"));
}

TEST(CutWeights, PacksThePartForProducts) {
  const CountingWeights whole;
  const CutWeights mine = weights(whole);
  const auto x = Tensor::from(std::span<const float>(std::vector<float>{1, 10}), {1, 2});
  EXPECT_EQ(ops::matmul(x, mine.matrix("columns", 2, 2, ops::DType::f32)).to_floats(),
            (std::vector<float>{32, 76}));
  EXPECT_EQ(ops::matmul(x, mine.matrix("other", 2, 2, ops::DType::f32)).to_floats(),
            (std::vector<float>{10, 32}));
  EXPECT_EQ(mine.paired("rows", "rows", 2, 2, ops::DType::f32)->n, 2);
}

TEST(CutWeights, RefusesAnotherPartAndSplitFilters) {
  const CountingWeights whole;
  const CutWeights mine = weights(whole);
  EXPECT_THROW(mine.get("rows", {3, 2}), Error);
  EXPECT_THROW(mine.conv("rows", "", {2, 1, 1, 1}, ops::DType::f32), Error);
}

}  // namespace
}  // namespace tessera::nn
