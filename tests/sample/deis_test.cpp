#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "DEISMultistepScheduler";

TEST(Deis, EndsWhereTrainingBegan) {
  const std::vector<float> start{1.5f};
  for (const char* config : {R"({"prediction_type": "sample"})",
                             R"({"prediction_type": "sample", "solver_order": 3})"}) {
    const Tensor end =
        walk(*sampler_of(kName, config, 20), Tensor::from(std::span<const float>(start), {1, 1}),
             [](float, int) { return 0.5f; });
    EXPECT_NEAR(end.to_floats()[0], 0.5f, 0.03) << config;  // some noise stays: sigma is not zero
  }
}

TEST(Deis, RefusesWhatItCannot) {
  EXPECT_NE(refusal(kName, R"({"thresholding": true})").find("thresholding"), std::string::npos);
  EXPECT_NE(refusal(kName, R"({"solver_order": 4})").find("solver_order"), std::string::npos);
  EXPECT_NE(refusal(kName, R"({"use_flow_sigmas": true})").find("go together"), std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
