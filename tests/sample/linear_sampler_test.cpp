#include "sample/linear_sampler.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

Tensor one(float value) {
  const std::vector<float> values{value};
  return Tensor::from(std::span<const float>(values), {1, 1});
}

TEST(LinearSampler, StepsByItsTable) {
  const LinearSampler sampler({{.timestep = 9,
                                .from_x = 1,
                                .from_out = -1,
                                .x = 0.5,
                                .out = 2,
                                .x0 = {3, 0, 0},
                                .noise = 10,
                                .draws = 1}});
  History history;
  // The estimate is 4 - 1; 0.5 * 4 + 2 * 1 + 3 * 3 + 10 * 0.1.
  EXPECT_FLOAT_EQ(sampler.step(0, one(1), one(4), one(0.1f), history).to_floats()[0], 14);
  EXPECT_EQ(sampler.timestep(0), 9);
  EXPECT_TRUE(history.outputs.empty());
}

TEST(LinearSampler, RemembersAsManyEstimatesAsItReads) {
  const LinearStep step{.from_out = 1, .x0 = {0, 1, 0}}, first{.from_out = 1};
  const LinearSampler sampler({first, step, step});
  History history;
  Tensor x = sampler.step(0, one(7), one(0), {}, history);
  EXPECT_EQ(sampler.step(1, one(8), x, {}, history).to_floats()[0], 7);
  EXPECT_EQ(sampler.step(2, one(9), x, {}, history).to_floats()[0], 8);
  EXPECT_EQ(history.outputs.size(), 1u);
}

TEST(LinearSampler, ClipsEstimates) {
  const LinearSampler sampler({{.from_x = 1, .x0 = {1, 0, 0}}}, 1, {.bound = 0.5});
  History history;
  EXPECT_EQ(sampler.step(0, one(0), one(-4), {}, history).to_floats()[0], -0.5f);
}

// Over four values: place 0.5 * 3 of |x| is between 2 and 3; the second sample stays below 1.
TEST(LinearSampler, ThresholdsEverySampleByItsOwnQuantile) {
  const std::vector<float> values{-1, 2, 3, -8, 0.5f, -0.25f, 0, 0.75f};
  const Tensor x = Tensor::from(std::span<const float>(values), {4, 2});
  const LinearStep step{.from_x = 1, .x0 = {1, 1}}, first{.from_x = 1, .x0 = {1}};
  const LinearSampler sampler({first, step}, 1, {.quantile = 0.5, .most = 4, .tokens = 2});
  EXPECT_TRUE(sampler.whole_samples());
  History history;
  const std::vector<float> expected{-0.4f, 0.8f, 1, -1, 0.5f, -0.25f, 0, 0.75f};
  EXPECT_EQ(sampler.step(0, x, x, {}, history).to_floats(), expected);
  const auto twice = sampler.step(1, x, x, {}, history).to_floats();
  for (size_t i = 0; i < twice.size(); ++i) EXPECT_EQ(twice[i], 2 * expected[i]);
  EXPECT_THROW(sampler.step(0, x.slice(0, 0, 1), x.slice(0, 0, 1), {}, history), Error);
}

TEST(LinearSampler, MissesNoiseThatItNeeds) {
  const LinearSampler sampler({{.noise = 1, .draws = 1}});
  History history;
  EXPECT_THROW(sampler.step(0, one(0), one(0), {}, history), Error);
}

}  // namespace
}  // namespace tessera::sample
