#include "sample/noise_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

NoiseSchedule schedule_of(const char* json) {
  const base::Json config = base::Json::parse(json);
  return read_noise_schedule({config, "scheduler_config.json"});
}

TEST(NoiseSchedule, FallsFromAlmostOneToAlmostZero) {
  for (const char* json : {"{}", R"({"beta_schedule": "scaled_linear"})",
                           R"({"beta_schedule": "squaredcos_cap_v2"})"}) {
    const NoiseSchedule s = schedule_of(json);
    ASSERT_EQ(s.alphas_cumprod.size(), 1000u);
    EXPECT_GT(s.alphas_cumprod.front(), 0.99);
    EXPECT_LT(s.alphas_cumprod.back(), 0.01);
    EXPECT_EQ(s.alpha(-5, 1), 1);
  }
}

TEST(NoiseSchedule, CanEndInPureNoise) {
  const NoiseSchedule s = schedule_of(R"({"rescale_betas_zero_snr": true})");
  EXPECT_EQ(s.alphas_cumprod.back(), 0);
  EXPECT_NEAR(s.alphas_cumprod.front(), 0.9999, 1e-5);
}

TEST(NoiseSchedule, TakesTrainedBetas) {
  const NoiseSchedule s = schedule_of(R"({"num_train_timesteps": 2, "trained_betas": [0.5, 0.5]})");
  EXPECT_EQ(s.alphas_cumprod, (std::vector<double>{0.5, 0.25}));
  EXPECT_THROW(schedule_of(R"({"trained_betas": [0.5]})"), Error);
}

TEST(NoiseSchedule, RoundsHalfToEven) {
  EXPECT_EQ(rounded(0.5), 0);
  EXPECT_EQ(rounded(1.5), 2);
}

TEST(NoiseSchedule, FindsTheTimestepOfASigmaAgain) {
  const std::vector<double> sigmas = schedule_of("{}").sigmas();
  const std::vector<float> logs = float_logs(sigmas);
  EXPECT_NEAR(timestep_of_sigma(logs, sigmas[400]), 400, 1e-4);
  EXPECT_NEAR(timestep_of_sigma(logs, sigmas[999] * 2), 999, 1e-4);
  EXPECT_EQ(timestep_of_sigma(logs, 0), 0);
  EXPECT_NEAR(sigma_at(sigmas, 400.5), (sigmas[400] + sigmas[401]) / 2, 1e-9);
}

TEST(NoiseSchedule, LogarithmsAreThoseOfNumpy) {
  // numpy.log of these float32 values (2.4.6); the system's function gives another last bit.
  const std::vector<double> values{0.4987500011920929, 0.6237499713897705, 0.7174999713897705,
                                   0.7487499713897705, 0.8112499713897705, 0.9987499713897705,
                                   3.1862499713897705};
  const std::vector<float> logs{-0.695650339f, -0.472005695f,   -0.331982344f, -0.289350152f,
                                -0.209179059f, -0.00125081057f, 1.15884471f};
  EXPECT_EQ(float_logs(values), logs);
}

TEST(NoiseSchedule, EverySpreadKeepsTheEnds) {
  for (const Spread spread : {Spread::karras, Spread::exponential, Spread::beta}) {
    const auto sigmas = spread_sigmas(spread, 80, 0.1, 5);
    EXPECT_NEAR(sigmas.front(), 80, 1e-9);
    EXPECT_NEAR(sigmas.back(), 0.1, 1e-9);
  }
}

TEST(NoiseSchedule, TakesOneSpreadAtMost) {
  const base::Json two =
      base::Json::parse(R"({"use_karras_sigmas": true, "use_beta_sigmas": true})");
  EXPECT_THROW(read_sharded({two, "c"}), Error);
  const base::Json one = base::Json::parse(R"({"use_beta_sigmas": true})");
  EXPECT_EQ(read_sharded({one, "c"}), Spread::beta);
}

}  // namespace
}  // namespace tessera::sample
