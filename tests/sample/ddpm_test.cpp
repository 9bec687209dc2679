#include <gtest/gtest.h>

#include "sample/sampler.h"
#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(Ddpm, RespacingKeepsBothEnds) {
  const auto ten = ddpm_learned_range(10);
  const int expected[] = {999, 888, 777, 666, 555, 444, 333, 222, 111, 0};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ten->timestep(i), float(expected[i]));
  const auto four = ddpm_learned_range(4);
  EXPECT_EQ(four->timestep(1), 666.0f);
  EXPECT_TRUE(four->needs_noise(2));
  EXPECT_FALSE(four->needs_noise(3));
}

TEST(Ddpm, RefusesStepsItWasNotTrainedFor) {
  EXPECT_THROW(ddpm_learned_range(1001), Error);
  EXPECT_THROW(ddpm_learned_range(0), Error);
}

TEST(Ddpm, RefusesAModelWithoutVariance) {
  const std::vector<float> values{1, 2};
  const Tensor x = Tensor::from(std::span<const float>(values), {1, 2});
  History history;
  EXPECT_THROW(ddpm_learned_range(4)->step(0, x, x, x, history), Error);
}

TEST(Ddpm, MissesNoiseThatItNeeds) {
  const std::vector<float> values{1, 2};
  const Tensor out = Tensor::from(std::span<const float>(values), {1, 2});
  const Tensor x = out.slice(1, 0, 1);
  History history;
  EXPECT_THROW(ddpm_learned_range(4)->step(0, out, x, {}, history), Error);
  EXPECT_NO_THROW(ddpm_learned_range(4)->step(3, out, x, {}, history));
}

}  // namespace
}  // namespace tessera::sample
