#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "DPMSolverSinglestepScheduler";

TEST(DpmSinglestep, EveryOrderEndsAtAnEstimateThatDoesNotMove) {
  const std::vector<float> start{1.5f};
  for (const char* config :
       {R"({"prediction_type": "sample", "solver_order": 1})", R"({"prediction_type": "sample"})",
        R"({"prediction_type": "sample", "solver_order": 3})",
        R"({"prediction_type": "sample", "solver_order": 3, "solver_type": "heun"})"})
    for (int steps : {1, 2, 3, 7, 9}) {
      const Tensor end = walk(*sampler_of(kName, config, steps),
                              Tensor::from(std::span<const float>(start), {1, 1}),
                              [](float, int) { return 0.5f; });
      EXPECT_NEAR(end.to_floats()[0], 0.5f, 1e-5) << config << steps;
    }
}

TEST(DpmSinglestep, RefusesTheStochasticForm) {
  EXPECT_NE(refusal(kName, R"({"algorithm_type": "sde-dpmsolver++"})").find("algorithm_type"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
