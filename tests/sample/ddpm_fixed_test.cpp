#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "DDPMScheduler";

TEST(DdpmFixed, DrawsNoiseBeforeEveryTimestepButZero) {
  const auto at_zero = sampler_of(kName, "{}", 4);
  EXPECT_EQ(times_of(*at_zero), (std::vector<float>{750, 500, 250, 0}));
  EXPECT_TRUE(at_zero->needs_noise(2));
  EXPECT_FALSE(at_zero->needs_noise(3));
  EXPECT_TRUE(sampler_of(kName, R"({"steps_offset": 1})", 4)->needs_noise(3));
}

TEST(DdpmFixed, EndsAtTheEstimate) {
  const std::vector<float> start{3};
  const Tensor end =
      walk(*sampler_of(kName, R"({"prediction_type": "sample"})", 6),
           Tensor::from(std::span<const float>(start), {1, 1}), [](float, int) { return 0.25f; });
  EXPECT_NEAR(end.to_floats()[0], 0.25f, 1e-5);
}

TEST(DdpmFixed, RefusesALearnedVariance) {
  EXPECT_NE(refusal(kName, R"({"variance_type": "learned_range"})").find("learned_range"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
