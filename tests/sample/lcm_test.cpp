#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "LCMScheduler";

TEST(Lcm, TakesTimestepsOfItsTraining) {
  EXPECT_EQ(times_of(*sampler_of(kName, "{}", 4)), (std::vector<float>{999, 759, 499, 259}));
  EXPECT_NE(refusal(kName, "{}", 51).find("from 1 to 50"), std::string::npos);
}

TEST(Lcm, EndsAtItsEstimateWithoutNoise) {
  const auto sampler = sampler_of(kName, R"({"prediction_type": "sample"})", 3);
  EXPECT_TRUE(sampler->needs_noise(1));
  EXPECT_FALSE(sampler->needs_noise(2));
  const std::vector<float> start{3};
  const Tensor end = walk(*sampler, Tensor::from(std::span<const float>(start), {1, 1}),
                          [](float, int) { return 0.25f; });
  EXPECT_NEAR(end.to_floats()[0], 0.25f, 1e-5);
}

}  // namespace
}  // namespace tessera::sample
