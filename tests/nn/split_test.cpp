#include "nn/split.h"

#include <gtest/gtest.h>

#include <numeric>

#include "nn/counting_weights.h"
#include "nn/sharded_weights.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

TEST(Split, TakesWholeUnitsOfEachPiece) {
  const Split qkv = Split::outputs({{64, 8}, {32, 8}, {32, 8}});
  const Cut half = qkv.of({1, 2});
  EXPECT_EQ(half.axis, 0);
  EXPECT_EQ(half.ranges, (std::vector<Range>{{32, 64}, {80, 96}, {112, 128}}));
  EXPECT_EQ(half.of({128, 5}), (tensor::Shape{64, 5}));
  const Cut out = Split::inputs({{64, 8}}).of({1, 2});
  EXPECT_EQ(out.axis, 1);
  EXPECT_EQ(out.ranges, (std::vector<Range>{{32, 64}}));
  EXPECT_TRUE(qkv.of({}).whole());
  EXPECT_TRUE(Split{}.of({1, 2}).whole());
}

TEST(Split, PartsMayDifferByAUnitAndMissNothing) {
  for (const auto& [width, unit] : {std::pair{30, 1}, {30, 3}, {10, 2}})
    for (int count : {2, 3, 4, 5}) {
      int64_t at = 0;
      for (int r = 0; r < count; ++r) {
        const Cut cut = Split::outputs({{width, unit}}).of({r, count});
        EXPECT_EQ(cut.ranges[0].begin, at);
        EXPECT_EQ(cut.ranges[0].size() % unit, 0);
        at = cut.ranges[0].end;
      }
      EXPECT_EQ(at, width);
    }
}

TEST(Split, RefusesToLeaveARankNothing) {
  try {
    (void)Split::outputs({{24, 8}}).of({0, 4});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plan);
    EXPECT_NE(std::string(e.what()).find("use tensor=3"), std::string::npos) << e.what();
  }
}

TEST(Cut, TakesRangesOfOneAxis) {
  const CountingWeights weights;
  const auto cut = [&](const tensor::Shape& shape, const Cut& of) {
    return taken(weights.get("w", shape), of).to_floats();
  };
  EXPECT_EQ(cut({4, 2}, {0, {{1, 3}}}), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(cut({4, 2}, {0, {{0, 1}, {3, 4}}}), (std::vector<float>{0, 1, 6, 7}));
  EXPECT_EQ(cut({2, 4}, {1, {{2, 4}}}), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(cut({2, 6}, {1, {{1, 2}, {4, 5}}}), (std::vector<float>{1, 4, 7, 10}));
  EXPECT_EQ(cut({2}, {}), (std::vector<float>{0, 1}));
}

TEST(ShardedWeights, PackWhatIsTaken) {
  const CountingWeights whole;
  const ShardedWeights mine(whole, {1, 2});
  EXPECT_EQ(mine.shard().index, 1);
  EXPECT_FALSE(mine.has("missing"));
  const Cut columns = Split::outputs({{4}}).of(mine.shard()),
            rows = Split::inputs({{4}}).of(mine.shard());
  const auto x = Tensor::from(std::span<const float>(std::vector<float>{1, 10}), {1, 2});
  EXPECT_EQ(ops::matmul(x, mine.matrix("w", 2, 4, ops::DType::f32, rows)).to_floats(),
            (std::vector<float>{32, 76}));
  EXPECT_EQ(ops::matmul(x, mine.matrix("w", 4, 2, ops::DType::f32, columns)).to_floats(),
            (std::vector<float>{54, 76}));
  EXPECT_EQ(mine.paired("gate", "up", 4, 2, ops::DType::f32, columns)->n, 2);
  EXPECT_EQ(mine.vector("b", 4, columns).to_floats(), (std::vector<float>{2, 3}));
  EXPECT_EQ(mine.get("w", {2}).to_floats(), (std::vector<float>{0, 1}));
  EXPECT_NE(mine.conv("w", "", {2, 1, 1, 1}, ops::DType::f32), nullptr);
}

}  // namespace
}  // namespace tessera::nn
