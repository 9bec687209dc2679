#include <cmath>

#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

constexpr const char* kName = "DPMSolverMultistepScheduler";

// The clean latent is 0.5 wherever the denoiser looks: every order must end there.
float noise_towards_half(float x, float alpha) {
  return (x - alpha * 0.5f) / std::sqrt(1 - alpha * alpha);
}

TEST(DpmSolver, EveryOrderEndsAtAnEstimateThatDoesNotMove) {
  for (const char* config :
       {R"({"solver_order": 1})", R"({"solver_order": 2})", R"({"solver_order": 3})",
        R"({"solver_type": "heun"})", R"({"use_karras_sigmas": true})",
        R"({"algorithm_type": "sde-dpmsolver++"})", R"({"use_lu_lambdas": true})"}) {
    const auto sampler = sampler_of(kName, config, 9);
    std::vector<float> alphas(1000);
    double product = 1;
    for (int t = 0; t < 1000; ++t) {
      product *= 1 - (1e-4 + (0.02 - 1e-4) * t / 999);
      alphas[static_cast<size_t>(t)] = static_cast<float>(std::sqrt(product));
    }
    const std::vector<float> start{1.5f};
    const Tensor end =
        walk(*sampler, Tensor::from(std::span<const float>(start), {1, 1}), [&](float x, int i) {
          return noise_towards_half(x, alphas[static_cast<size_t>(sampler->timestep(i))]);
        });
    EXPECT_NEAR(end.to_floats()[0], 0.5f, 2e-2) << config;
  }
}

TEST(DpmSolver, FlowSigmasFeedWholeTimesteps) {
  const auto times = times_of(*sampler_of(
      kName, R"({"use_flow_sigmas": true, "prediction_type": "flow_prediction", "flow_shift": 3})",
      6));
  for (float t : times) EXPECT_EQ(t, std::floor(t));
}

TEST(DpmSolver, ClippedLambdasLeaveEarlyTimestepsOut) {
  // Values of diffusers 0.42.1; lambda of timestep 967 is the last of at least -3.
  const char* config = R"({"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -3})";
  const auto times = times_of(*sampler_of(kName, config, 4));
  EXPECT_EQ(times, (std::vector<float>{967, 725, 484, 242}));
}

TEST(DpmSolver, RefusesWhatItCannot) {
  EXPECT_NE(refusal(kName, R"({"algorithm_type": "dpmsolver"})").find("algorithm_type"),
            std::string::npos);
  EXPECT_NE(refusal(kName, R"({"solver_order": 4})").find("solver_order"), std::string::npos);
  EXPECT_NE(refusal(kName, R"({"lambda_min_clipped": 100})").find("lambda_min_clipped"),
            std::string::npos);
  EXPECT_NE(refusal(kName, R"({"use_flow_sigmas": true, "use_beta_sigmas": true})")
                .find("use_flow_sigmas"),
            std::string::npos);
  EXPECT_NE(refusal(kName, R"({"use_flow_sigmas": true})").find("go together"), std::string::npos);
}

}  // namespace
}  // namespace tessera::sample
