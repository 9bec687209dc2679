#include <cmath>

#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "EulerDiscreteScheduler";

TEST(EulerDiscrete, ScalesNoiseUpAndInputsDown) {
  const auto sampler =
      sampler_of(kName, R"({"beta_schedule": "scaled_linear", "beta_start": 0.00085,
    "beta_end": 0.012, "timestep_spacing": "leading", "steps_offset": 1})",
                 10);
  EXPECT_EQ(sampler->timestep(0), 901);
  EXPECT_GT(sampler->initial_scale(), 5);
  EXPECT_NEAR(sampler->initial_scale() * sampler->input_scale(0), 1, 1e-5);
}

TEST(EulerDiscrete, EndsAtTheCleanLatentInBothPredictions) {
  for (const char* config :
       {"{}", R"({"prediction_type": "v_prediction"})", R"({"use_karras_sigmas": true})"}) {
    const auto sampler = sampler_of(kName, config, 12);
    const bool velocity = std::string(config).find("v_pred") != std::string::npos;
    const std::vector<float> start{sampler->initial_scale() * 0.7f};
    const Tensor end =
        walk(*sampler, Tensor::from(std::span<const float>(start), {1, 1}), [&](float x, int i) {
          const float c = sampler->input_scale(i), sigma = std::sqrt(1 / (c * c) - 1);
          const float noise = (x - 0.5f) / sigma;
          return velocity ? c * (noise - sigma * 0.5f) : noise;
        });
    EXPECT_NEAR(end.to_floats()[0], 0.5f, 1e-3) << config;
  }
}

TEST(EulerDiscrete, RefusesWhatItCannot) {
  EXPECT_NE(refusal(kName, R"({"interpolation_type": "cubic"})").find("interpolation_type"),
            std::string::npos);
  const char* continuous = R"({"timestep_type": "continuous", "prediction_type": "v_prediction"})";
  EXPECT_NE(refusal(kName, continuous).find("timestep_type"), std::string::npos);
  EXPECT_NE(
      refusal("EulerAncestralDiscreteScheduler", R"({"prediction_type": "sample"})").find("sample"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
