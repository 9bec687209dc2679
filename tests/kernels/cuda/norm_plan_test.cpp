#include "kernels/cuda/norm_plan.h"

#include <gtest/gtest.h>

namespace tessera::kernels::cuda {
namespace {

TEST(NormPlan, HoldsEveryWidthInWholeWarps) {
  for (int64_t width = 1; width <= kMostNormWidth; width += width < 600 ? 1 : 97)
    for (bool words : {false, true}) {
      if (words && width % 8) continue;
      const NormPlan plan = norm_plan(width, words);
      EXPECT_GE(int64_t{plan.lanes} * plan.chunks * plan.vector, width);
      EXPECT_EQ(plan.threads % 32, 0);
      EXPECT_LE(plan.threads, 1024);
      EXPECT_GE(plan.rows_per_block(), 1);
      EXPECT_TRUE(plan.lanes <= 32 ? 32 % plan.lanes == 0 : plan.lanes == plan.threads) << width;
    }
}

TEST(NormPlan, HeadsShareAWarpAndHiddenRowsAreABlock) {
  EXPECT_EQ(norm_plan(64, true).rows_per_block(), 16);
  EXPECT_EQ(norm_plan(128, true).lanes, 16);
  EXPECT_EQ(norm_plan(1152, true).threads, 160);
  EXPECT_EQ(norm_plan(3072, true).chunks, 1);
  EXPECT_EQ(norm_plan(8192, true).chunks, 4);
}

}  // namespace
}  // namespace tessera::kernels::cuda
