#include <cmath>

#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "HeunDiscreteScheduler";

TEST(HeunDiscrete, LooksTwiceAtEveryPlaceButTheFirst) {
  const auto sampler = sampler_of(kName, R"({"timestep_spacing": "trailing"})", 4);
  EXPECT_EQ(times_of(*sampler), (std::vector<float>{999, 749, 749, 499, 499, 249, 249}));
  for (int i = 1; i < sampler->steps(); i += 2)
    EXPECT_EQ(sampler->input_scale(i), sampler->input_scale(i + 1));
}

// dx / d sigma = x: Euler's error halves with the step, Heun's quarters.
TEST(HeunDiscrete, IsOfSecondOrder) {
  const std::vector<float> start{1};
  const auto error = [&](int steps) {
    const auto sampler =
        sampler_of(kName, R"({"use_karras_sigmas": true, "trained_betas": null})", steps);
    const float scale = sampler->input_scale(0), top = std::sqrt(1 / (scale * scale) - 1);
    const Tensor end = walk(*sampler, Tensor::from(std::span<const float>(start), {1, 1}),
                            [](float x, int) { return 0.1f * x; });
    return std::abs(double(end.to_floats()[0]) - std::exp(-0.1 * top));
  };
  EXPECT_LT(error(40), error(20) / 3);
  EXPECT_LT(error(20), 0.05);
}

}  // namespace
}  // namespace tessera::sample
