#include "sample/solver_path.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

SolverPath path_of(const char* json, SolverClass kind) {
  const base::Json config = base::Json::parse(json);
  return solver_path({config, "c"}, {.steps = 5}, kind);
}

TEST(SolverPath, EveryClassEndsAsDiffusersDoes) {
  const char* kept = R"({"final_sigmas_type": "sigma_min"})";
  const char* flow = R"({"final_sigmas_type": "sigma_min", "use_flow_sigmas": true})";
  const double smallest = path_of(kept, SolverClass::dpm_multistep).sigmas.back();
  EXPECT_NEAR(smallest, 0.01, 1e-4);
  EXPECT_EQ(path_of(flow, SolverClass::dpm_multistep).sigmas.back(), smallest);
  EXPECT_EQ(path_of(flow, SolverClass::dpm_singlestep).sigmas.back(), smallest);
  EXPECT_EQ(path_of("{}", SolverClass::deis).sigmas.back(), smallest);
  for (const SolverClass kind : {SolverClass::unipc, SolverClass::deis}) {
    const SolverPath path = path_of(flow, kind);
    EXPECT_EQ(path.sigmas[5], path.sigmas[4]);
  }
  EXPECT_EQ(path_of("{}", SolverClass::unipc).sigmas.back(), 0);
}

TEST(SolverPath, IsOfAFlowOrKeepsTheVariance) {
  const SolverPath flow = path_of(R"({"use_flow_sigmas": true})", SolverClass::unipc);
  EXPECT_DOUBLE_EQ(flow.alpha(2) + flow.sigma(2), 1);
  const SolverPath path = path_of("{}", SolverClass::deis);
  EXPECT_NEAR(std::pow(path.alpha(2), 2) + std::pow(path.sigma(2), 2), 1, 1e-12);
  EXPECT_NEAR(path.lambda(2), -std::log(path.sigmas[2]), 1e-12);
}

TEST(SolverPath, LuLambdasBeginAtTheLastTimestepOfTraining) {
  for (const char* beta : {"linear", "scaled_linear", "squaredcos_cap_v2"})
    for (const bool zero : {false, true}) {
      const base::Json config{
          {"use_lu_lambdas", true}, {"beta_schedule", beta}, {"rescale_betas_zero_snr", zero}};
      const SolverPath path = solver_path({config, "c"}, {.steps = 5}, SolverClass::dpm_multistep);
      EXPECT_EQ(path.times.front(), 999) << config;
      EXPECT_EQ(path.times.back(), 0) << config;
    }
}

TEST(SolverPath, TheShiftOfThePipelineStandsInForAMissingKey) {
  const char* dynamic = R"({"use_flow_sigmas": true, "use_dynamic_shifting": true})";
  const char* said =
      R"({"use_flow_sigmas": true, "use_dynamic_shifting": true, "max_shift": 1.15})";
  for (const SolverClass kind : {SolverClass::dpm_multistep, SolverClass::dpm_singlestep,
                                 SolverClass::unipc, SolverClass::deis}) {
    const auto second = [&](const char* json, double most) {
      const base::Json config = base::Json::parse(json);
      return solver_path({config, "c"}, {.steps = 5, .tokens = 4096, .max_shift = most}, kind)
          .sigmas[1];
    };
    EXPECT_GT(second(dynamic, 1.16), second(dynamic, 1.15));
    EXPECT_EQ(second(said, 1.16), second(dynamic, 1.15));
  }
}

TEST(SolverPath, ShiftsByTheSizeOfTheSample) {
  const base::Json config = base::Json::parse("{}");
  EXPECT_NEAR(read_size_shift({config, "c"}, 256), 0.5, 1e-12);
  EXPECT_NEAR(read_size_shift({config, "c"}, 4096), 1.15, 1e-12);
  EXPECT_NEAR(read_size_shift({config, "c"}, 4096, 1.16), 1.16, 1e-12);
  const base::Json flat = base::Json::parse(R"({"base_image_seq_len": 9, "max_image_seq_len": 9})");
  EXPECT_THROW(read_size_shift({flat, "c"}, 9), Error);
}

}  // namespace
}  // namespace tessera::sample
