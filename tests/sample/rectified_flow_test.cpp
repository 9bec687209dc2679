#include <gtest/gtest.h>

#include "sample/sampler.h"
#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(RectifiedFlow, TimesFallFromOneInEqualSteps) {
  const auto flow = rectified_flow(4);
  EXPECT_FLOAT_EQ(flow->timestep(0), 1.0f);
  EXPECT_FLOAT_EQ(flow->timestep(3), 0.25f);
  EXPECT_FALSE(flow->needs_noise(0));
}

TEST(RectifiedFlow, AConstantVelocityIsFollowedExactly) {
  const auto flow = rectified_flow(4);
  const std::vector<float> start{1, 2}, velocity{0.5f, -1, 9, 9};
  Tensor x = Tensor::from(std::span<const float>(start), {1, 2});
  const Tensor v = Tensor::from(std::span<const float>(velocity), {1, 4});
  History history;
  for (int i = 0; i < 4; ++i) x = flow->step(i, v, x, {}, history);
  EXPECT_EQ(x.to_floats(), (std::vector<float>{0.5f, 3}));
}

TEST(RectifiedFlow, RefusesNoSteps) {
  EXPECT_THROW(rectified_flow(0), Error);
  EXPECT_THROW(rectified_flow(-3), Error);
}

}  // namespace
}  // namespace tessera::sample
