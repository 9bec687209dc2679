#include "sample/sigma_steps.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(SigmaSteps, SplitTheLatentInTheirOwnUnits) {
  const double sigma = 3, clean = 2, noise = -1, x = clean + sigma * noise;
  const double scale = SigmaSteps::input_scale(sigma);
  // v of the scaled latent: alpha * noise - sigma * clean, alpha = scale.
  const double velocity = scale * noise - sigma * scale * clean;
  for (const auto& [kind, out] : {std::pair{PredictionType::epsilon, noise},
                                  {PredictionType::velocity, velocity},
                                  {PredictionType::sample, clean}}) {
    const FromPair c = SigmaSteps::clean_of(kind, sigma);
    EXPECT_NEAR(c.x * x + c.out * out, clean, 1e-12);
  }
}

TEST(SigmaSteps, ReadTheirEndsOnlyWhereTheClassDoes) {
  const base::Json config =
      base::Json::parse(R"({"use_karras_sigmas": true, "sigma_max": 7, "sigma_min": 0.5,
                            "final_sigmas_type": "sigma_min"})");
  const SigmaSteps own = sigma_steps({config, "c"}, {.steps = 4}, {.ends = true});
  EXPECT_NEAR(own.sigmas.front(), 7, 1e-5);
  EXPECT_NEAR(own.sigmas[3], 0.5, 1e-6);
  EXPECT_GT(own.sigmas.back(), 0);
  const SigmaSteps trained = sigma_steps({config, "c"}, {.steps = 4}, {});
  EXPECT_GT(trained.sigmas.front(), 100);
  EXPECT_EQ(trained.sigmas.back(), 0);
}

}  // namespace
}  // namespace tessera::sample
