#include "evaluation/fit.h"

#include <gtest/gtest.h>

namespace tessera::evaluation {
namespace {

TEST(Fit, FindsWhatMadeTheSamples) {
  const std::vector<double> x{1, 2, 3, 4, 8}, z{5, 1, 4, 2, 2};
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(2 * x[i] + 0.5 * z[i]);
  const Fit exact = fit_two(x, z, y);
  EXPECT_NEAR(exact.a, 2, 1e-12);
  EXPECT_NEAR(exact.b, 0.5, 1e-12);
  EXPECT_NEAR(exact.r2, 1, 1e-12);
  y[0] += 3;
  EXPECT_LT(fit_two(x, z, y).r2, 0.99);
  // By hand: 2 a + b = 5, a + 2 b = 6; rests of a third each, 14 thirds around the mean.
  const Fit three = fit_two({1, 0, 1}, {0, 1, 1}, {1, 2, 4});
  EXPECT_NEAR(three.a, 4.0 / 3, 1e-12);
  EXPECT_NEAR(three.b, 7.0 / 3, 1e-12);
  EXPECT_NEAR(three.r2, 1 - 1.0 / 14, 1e-12);
}

TEST(Fit, WhatCannotBeToldApartGivesZeros) {
  EXPECT_EQ(fit_two({1, 2, 3}, {2, 4, 6}, {1, 2, 3}).a, 0);
  EXPECT_EQ(fit_two({1, 2}, {2, 1}, {1, 2}).b, 0);
  EXPECT_EQ(fit_two({}, {}, {}).r2, 0);
}

TEST(Fit, CosineOfVectors) {
  EXPECT_NEAR(cosine({1, 2, 0}, {2, 4, 0}), 1, 1e-12);
  EXPECT_NEAR(cosine({1, 2, 2}, {2, 2, 1}), 8.0 / 9, 1e-12);
  EXPECT_EQ(cosine({1, 0}, {0, 1}), 0);
  EXPECT_EQ(cosine({0, 0}, {0, 1}), 0);
}

}  // namespace
}  // namespace tessera::evaluation
