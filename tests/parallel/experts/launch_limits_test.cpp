#include "parallel/experts/launch_limits.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

TEST(LaunchLimits, AreNamedWithTheLayer) {
  nn::Geometry geometry;
  geometry.hidden = 64;
  geometry.experts = {{0, 16, 2, 8}, {1, 16, 2, 8}};
  const auto why = [&](const char* plan) { return launch_problem(parse_plan(plan), geometry); };
  EXPECT_EQ(why("data=8,expert=8,moe=fused"), "");
  EXPECT_EQ(why("data=16,expert=16"), "");
  EXPECT_EQ(why("data=16,expert=16,moe=fused"),
            "moe=fused on a GPU: MoE layer 0 has 16 ranks; at most 8 share a launch; use moe=bulk, "
            "or `device` cpu");
  geometry.experts[1].inner = 12;
  EXPECT_EQ(why("data=2,expert=2,moe=fused"),
            "moe=fused on a GPU: MoE layer 1 has experts of 64 to 12 channels; both must be "
            "multiples of 8; use moe=bulk, or `device` cpu");
}

}  // namespace
}  // namespace tessera::parallel
