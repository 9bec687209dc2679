#include "evaluation/unpaired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/error.h"

namespace tessera::evaluation {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor rows(std::vector<float> values, int64_t width) {
  return Tensor::from(std::span<const float>(values),
                      {static_cast<int64_t>(values.size()) / width, width});
}

Tensor normal(int64_t n, int64_t d, float shift, float scale, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(shift, scale);
  Tensor x = Tensor::empty({n, d}, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(engine);
  return x;
}

TEST(Moments, OfAFewRows) {
  const Moments m = moments(rows({1, 2, 3, 6}, 2));
  EXPECT_EQ(m.mean, (std::vector<double>{2, 4}));
  EXPECT_EQ(m.covariance, (std::vector<double>{1, 2, 2, 4}));
  EXPECT_THROW(moments(Tensor::empty({0, 2}, DType::f32)), Error);
}

TEST(FrechetDistance, HasTheClosedFormOfDiagonalCovariances) {
  const Moments a{{0, 1}, {4, 0, 0, 9}}, b{{3, 1}, {1, 0, 0, 25}};
  EXPECT_NEAR(frechet_distance(a, b), 9 + (2 - 1) * (2 - 1) + (3 - 5) * (3 - 5), 1e-9);
  EXPECT_NEAR(frechet_distance(a, a), 0, 1e-9);
}

TEST(FrechetDistance, DoesNotDependOnTheAxes) {
  const double c = std::cos(0.4), s = std::sin(0.4);
  const auto turned = [&](double x, double y) {
    return Moments{
        {0, 0}, {c * c * x + s * s * y, c * s * (x - y), c * s * (x - y), s * s * x + c * c * y}};
  };
  EXPECT_NEAR(frechet_distance(turned(4, 9), turned(1, 25)), 1 + 4, 1e-9);
  EXPECT_NEAR(frechet_distance(turned(4, 0), {{0, 0}, {0, 0, 0, 0}}), 4, 1e-9) << "singular";
  EXPECT_THROW(frechet_distance({{0}, {1}}, turned(1, 1)), Error);
}

TEST(InceptionScore, IsTheNumberOfClassesSeenForSure) {
  EXPECT_NEAR(inception_score(rows({50, 0, 0, 0, 50, 0, 0, 0, 50}, 3)), 3, 1e-6);
  EXPECT_NEAR(inception_score(rows({50, 0, 0, 50, 0, 0}, 3)), 1, 1e-6) << "one class only";
  EXPECT_NEAR(inception_score(rows({1, 1, 1, 1}, 2)), 1, 1e-6) << "never sure";
}

TEST(Overlap, FallsOnTheSideThatIsMissing) {
  const Tensor real = normal(400, 4, 0, 1, 1), same = normal(400, 4, 0, 1, 2);
  const Overlap alike = overlap(same, real);
  EXPECT_GT(alike.precision, 0.85);
  EXPECT_GT(alike.recall, 0.85);
  const Overlap narrow = overlap(normal(400, 4, 0, 0.2f, 3), real);
  EXPECT_GT(narrow.precision, 0.95);
  EXPECT_LT(narrow.recall, 0.2) << "made images are all alike";
  const Overlap elsewhere = overlap(normal(400, 4, 30, 1, 4), real);
  EXPECT_EQ(elsewhere.precision, 0);
  EXPECT_EQ(elsewhere.recall, 0);
  EXPECT_THROW(overlap(real, normal(3, 4, 0, 1, 5)), Error);
}

}  // namespace
}  // namespace tessera::evaluation
