#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/closeness.h"
#include "kernels/sampling_problem.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::Tensor;

// Calls f(flat index, t, j) for every element of a problem.
template <class F>
void each(const SamplingProblem& p, F f) {
  for (int64_t t = 0; t < p.rows; ++t)
    for (int64_t j = 0; j < p.columns; ++j) f(t * p.columns + j, t, j);
}

std::vector<SamplingProblem> problems() {
  std::vector<SamplingProblem> all;
  for (const StepSize size : {StepSize{7, 37}, {1, 1}, {300, 64}, {0, 8}})
    all.emplace_back(kHost, size);
  return all;
}

// The sums of the formula in order, in f64, rounded once: equal in every bit.
TEST(Sampling, LinearStepsAreTheFormulaInDoubles) {
  for (Isa isa : available_isas())
    for (const SamplingProblem& p : problems())
      for (const LinearStepCoefficients& by : linear_steps()) {
        const Tensor y = p.linear(cpu_table(isa).linear_step, by);
        each(p, [&](int64_t i, int64_t t, int64_t j) {
          const double x = p.x.row<float>(t)[j], out = p.prediction.row<float>(t)[j];
          const double x0 = std::clamp(by.from_x * x + by.from_out * out, -by.clip, by.clip);
          double sum = by.x * x + by.out * out + by.estimates[0] * x0;
          if (by.estimates[1] != 0) sum += by.estimates[1] * double(p.before.row<float>(t)[j]);
          if (by.estimates[2] != 0) sum += by.estimates[2] * double(p.before_it.row<float>(t)[j]);
          if (by.estimates[3] != 0) sum += by.estimates[3] * double(p.oldest.row<float>(t)[j]);
          if (by.noise != 0) sum += by.noise * double(p.noise.row<float>(t)[j]);
          ASSERT_EQ(y.data<float>()[i], static_cast<float>(sum));
          ASSERT_EQ(y.row<float>(p.rows)[i], static_cast<float>(x0));
        });
      }
}

TEST(Sampling, AnEstimateThatNobodyWantsIsNotWritten) {
  const std::vector<float> x{4};
  float next = 0;
  cpu_table().linear_step({.by = {.x = 2},
                           .x = {x.data(), 1},
                           .prediction = {x.data(), 1},
                           .noise = {},
                           .earlier = {},
                           .next = &next,
                           .rows = 1,
                           .columns = 1});
  EXPECT_EQ(next, 8);
}

TEST(Sampling, LearnedRangesAddNoiseOfTheirVariance) {
  for (Isa isa : available_isas())
    for (const SamplingProblem& p : problems())
      for (bool with_noise : {false, true}) {
        const LearnedRangeCoefficients& by = kLearnedRange;
        const Tensor y = p.learned_range(cpu_table(isa).learned_range_step, by, with_noise);
        each(p, [&](int64_t i, int64_t t, int64_t j) {
          const double x = p.x.row<float>(t)[j], eps = p.prediction.row<float>(t)[j];
          const double share = (double(p.prediction.row<float>(t)[p.columns + j]) + 1) / 2;
          const double variance = share * by.log_beta + (1 - share) * by.log_posterior;
          double want = by.mean_x0 * (by.recip * x - by.recipm1 * eps) + by.mean_x * x;
          if (with_noise) want += std::exp(variance / 2) * double(p.noise.row<float>(t)[j]);
          ASSERT_NEAR(y.data<float>()[i], want, 2e-6 * (1 + std::abs(want)));
        });
      }
}

TEST(Sampling, FlowsFollowTheVelocity) {
  for (Isa isa : available_isas())
    for (const SamplingProblem& p : problems()) {
      const Tensor y = p.flow(cpu_table(isa).flow_step, 0.3f);
      each(p, [&](int64_t i, int64_t t, int64_t j) {
        ASSERT_EQ(y.data<float>()[i], p.x.row<float>(t)[j] - p.prediction.row<float>(t)[j] * 0.3f);
      });
    }
}

TEST(Sampling, GuidanceLeavesTheOtherColumnsConditional) {
  for (Isa isa : available_isas())
    for (const SamplingProblem& p : problems())
      for (int64_t guided : {int64_t{0}, p.columns / 2, p.columns}) {
        const Tensor y = p.guide(cpu_table(isa).guide, 4.5f, guided);
        each(p, [&](int64_t i, int64_t t, int64_t j) {
          const float c = p.prediction.row<float>(t)[j], u = p.noise.row<float>(t)[j];
          ASSERT_EQ(y.data<float>()[i], j < guided ? u + 4.5f * (c - u) : c);
        });
      }
}

}  // namespace
}  // namespace tessera::kernels
