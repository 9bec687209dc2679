#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kConfig = R"({"prediction_type": "v_prediction",
  "rescale_betas_zero_snr": true, "timestep_spacing": "trailing", "snr_shift_scale": 1.0})";

TEST(CogvideoxSchedulers, StartFromPureNoiseWithFiniteSteps) {
  for (const char* name : {"CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"}) {
    const auto sampler = sampler_of(name, kConfig, 5);
    EXPECT_EQ(sampler->timestep(0), 999);
    const std::vector<float> start{2};
    const Tensor end = walk(*sampler, Tensor::from(std::span<const float>(start), {1, 1}),
                            [](float, int i) { return i == 0 ? -0.5f : 0.1f; });
    EXPECT_TRUE(std::isfinite(end.to_floats()[0])) << name;
  }
}

TEST(CogvideoxSchedulers, LeaveEstimatesUnclipped) {
  const std::vector<float> start{4};
  const Tensor x = Tensor::from(std::span<const float>(start), {1, 1});
  const auto end = [&](const char* clip) {
    const std::string config = std::string(R"({"prediction_type": "sample")") + clip + "}";
    return walk(*sampler_of("CogVideoXDDIMScheduler", config.c_str(), 4), x,
                [](float, int) { return 3.0f; })
        .to_floats()[0];
  };
  EXPECT_EQ(end(""), end(R"(, "clip_sample": true)"));
  EXPECT_GT(end(""), 2);
}

TEST(CogvideoxSchedulers, TheSecondOrderDrawsTwice) {
  const auto sampler = sampler_of("CogVideoXDPMScheduler", kConfig, 4);
  EXPECT_EQ(sampler->noise_draws(0), 1);
  EXPECT_EQ(sampler->noise_draws(1), 2);
  EXPECT_EQ(sampler->noise_draws(3), 1);
  EXPECT_EQ(sampler_of("CogVideoXDDIMScheduler", kConfig, 4)->noise_draws(1), 0);
}

}  // namespace
}  // namespace tessera::sample
