#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "UniPCMultistepScheduler";

TEST(UniPc, EveryOrderEndsAtAnEstimateThatDoesNotMove) {
  const std::vector<float> start{1.5f};
  for (const char* order : {"1", "2", "3"})
    for (const char* more : {"", R"(, "solver_type": "bh1")", R"(, "disable_corrector": [1])"}) {
      const std::string config =
          std::string(R"({"prediction_type": "sample", "solver_order": )") + order + more + "}";
      const Tensor end = walk(*sampler_of(kName, config.c_str(), 9),
                              Tensor::from(std::span<const float>(start), {1, 1}),
                              [](float, int) { return 0.5f; });
      EXPECT_NEAR(end.to_floats()[0], 0.5f, 1e-5) << config;
    }
}

TEST(UniPc, RefusesWhatItCannot) {
  EXPECT_NE(refusal(kName, R"({"solver_p": {}})").find("solver_p"), std::string::npos);
  EXPECT_NE(refusal(kName, R"({"solver_order": 4})").find("solver_order"), std::string::npos);
  EXPECT_NE(refusal(kName, R"({"lower_order_final": false})").find("no finite numbers"),
            std::string::npos);
  EXPECT_NE(refusal(kName, R"({"predict_x0": false, "thresholding": true})").find("thresholding"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
