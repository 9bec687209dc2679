#include <gtest/gtest.h>

#include "base/json.h"
#include "planner/cluster_description.h"
#include "tessera/error.h"
#include "tessera/prediction.h"

namespace tessera {
namespace {

TEST(Calibrate, DescribesThisMachine) {
  const auto described = planner::cluster_of(base::Json::parse(calibrate(2, 1)), "calibrated");
  EXPECT_EQ(described.ranks(), 2);
  EXPECT_GT(described.device.flops.at("bf16"), 1e6);
  EXPECT_GT(described.device.memory_bandwidth, 1e6);
  EXPECT_EQ(described.device.curves.count("attention"), 1u);
  EXPECT_THROW(calibrate(0, 1), Error);
}

}  // namespace
}  // namespace tessera
