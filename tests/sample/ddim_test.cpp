#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "DDIMScheduler";

TEST(Ddim, SpacesStepsAsTheFolderSays) {
  EXPECT_EQ(times_of(*sampler_of(kName, R"({"steps_offset": 1})", 4)),
            (std::vector<float>{751, 501, 251, 1}));
  EXPECT_EQ(times_of(*sampler_of(kName, R"({"timestep_spacing": "trailing"})", 4)),
            (std::vector<float>{999, 749, 499, 249}));
  EXPECT_EQ(times_of(*sampler_of(kName, R"({"timestep_spacing": "linspace"})", 4)),
            (std::vector<float>{999, 666, 333, 0}));
}

TEST(Ddim, ClipsTheEstimateOnlyWhenAsked) {
  const std::vector<float> start{5};
  const Tensor x = Tensor::from(std::span<const float>(start), {1, 1});
  auto last = [&](const char* config) {
    return walk(*sampler_of(kName, config, 10), x, [](float, int) { return 5.0f; }).to_floats()[0];
  };
  const char* free = R"({"prediction_type": "sample", "clip_sample": false})";
  EXPECT_NEAR(last(free), 5, 1e-3);
  EXPECT_NEAR(last(R"({"prediction_type": "sample"})"), 1, 1e-3);
}

}  // namespace
}  // namespace tessera::sample
