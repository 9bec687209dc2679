#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "FlowMatchEulerDiscreteScheduler";

TEST(FlowMatchEuler, EvenSigmasStepEvenly) {
  EXPECT_EQ(times_of(*sampler_of(kName, "{}", 4, 0, true)),
            (std::vector<float>{1000, 750, 500, 250}));
}

TEST(FlowMatchEuler, ALargerSampleIsShiftedTowardsNoise) {
  const char* config = R"({"use_dynamic_shifting": true})";
  const auto small = times_of(*sampler_of(kName, config, 4, 256, true));
  const auto large = times_of(*sampler_of(kName, config, 4, 4096, true));
  EXPECT_FLOAT_EQ(small[2], 1000 * std::exp(0.5f) / (std::exp(0.5f) + 1));
  EXPECT_GT(large[2], small[2]);
}

TEST(FlowMatchEuler, ReachesTheCleanLatentOfAStraightFlow) {
  const auto sampler = sampler_of(kName, R"({"shift": 3})", 7);
  const std::vector<float> start{1, -2};
  const Tensor x = Tensor::from(std::span<const float>(start), {1, 2});
  // x = 0.25 at the end, noise at the start: the velocity is their difference.
  const Tensor end = walk(*sampler, x, [&](float v, int i) {
    const float sigma = sampler->timestep(i) / 1000;
    return (v - 0.25f) / sigma;
  });
  for (float v : end.to_floats()) EXPECT_NEAR(v, 0.25f, 1e-5);
}

TEST(FlowMatchEuler, AStretchedPathEndsWhereItIsTold) {
  const auto times = times_of(*sampler_of(kName, R"({"shift_terminal": 0.1})", 5, 0, true));
  EXPECT_NEAR(times.back(), 100, 1e-3);
  EXPECT_FLOAT_EQ(times.front(), 1000);
}

TEST(FlowMatchEuler, RefusesWhatItCannot) {
  EXPECT_NE(refusal(kName, R"({"use_beta_sigmas": true, "use_karras_sigmas": true})")
                .find("use_beta_sigmas"),
            std::string::npos);
  EXPECT_NE(refusal(kName, R"({"time_shift_type": "odd"})").find("exponential, linear"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
