#include "fused/device_limits.h"

#include <gtest/gtest.h>

namespace tessera::fused {
namespace {

TEST(DeviceLimits, SayWhyALayerIsNoLaunch) {
  EXPECT_EQ(device_problem(8, 512, 64, 8), "");
  EXPECT_EQ(device_problem(9, 16, 64, 8), "9 ranks; at most 8 share a launch");
  EXPECT_EQ(device_problem(2, 513, 64, 8), "513 experts; a launch has at most 512");
  EXPECT_EQ(device_problem(2, 16, 60, 8),
            "experts of 60 to 8 channels; both must be multiples of 8");
  EXPECT_EQ(device_problem(2, 16, 64, 12),
            "experts of 64 to 12 channels; both must be multiples of 8");
}

}  // namespace
}  // namespace tessera::fused
