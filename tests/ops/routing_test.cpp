#include "ops/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera::ops {
namespace {

constexpr float kClosed = -std::numeric_limits<float>::infinity();

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TEST(Routing, SigmoidRanksWithItsBiasAndWeighsWithoutIt) {
  const Tensor logits = Tensor::from(std::vector<float>{2, 1, 0, -1}, {1, 4});
  RoutingOptions o{.score = RoutingOptions::Score::sigmoid,
                   .top_k = 2,
                   .renormalise = true,
                   .scale = 2.5f,
                   .bias = Tensor::from(std::vector<float>{0, 0, 0, 9}, {4})};
  const Routing r = route(logits, o);
  EXPECT_EQ(r.ids.to_ints(), (std::vector<int64_t>{3, 0}));
  const float a = sigmoid(-1), b = sigmoid(2);
  EXPECT_NEAR(r.weights.to_floats()[0], 2.5f * a / (a + b), 1e-6);
  EXPECT_NEAR(r.weights.to_floats()[1], 2.5f * b / (a + b), 1e-6);
}

TEST(Routing, GroupsAreRankedByTheirTwoBest) {
  std::vector<float> rank{5, 0, 3, 3, 4, 1.5f};  // worth 5, 6, 5.5
  limit_groups(rank, 3, 1);
  EXPECT_EQ(rank, (std::vector<float>{kClosed, kClosed, 3, 3, kClosed, kClosed}));
}

TEST(Routing, AGroupOfOneMemberCountsAndOneOfNoneIsClosed) {
  std::vector<float> rank{kClosed, kClosed, kClosed, 7, 1, 2};
  limit_groups(rank, 3, 2);
  EXPECT_EQ(rank, (std::vector<float>{kClosed, kClosed, kClosed, 7, 1, 2}));
  std::vector<float> alone{kClosed, kClosed, kClosed, 7};
  limit_groups(alone, 2, 2);
  EXPECT_EQ(alone, (std::vector<float>{kClosed, kClosed, kClosed, 7}));
}

TEST(Routing, TiesGoToTheLowestIndex) {
  std::vector<int32_t> best(3);
  best_k(std::vector<float>{1, 3, 3}, nullptr, 3, best.data());
  EXPECT_EQ(best, (std::vector<int32_t>{1, 2, 0}));
  best_k(std::vector<float>{kClosed, kClosed, -4}, nullptr, 2, best.data());
  EXPECT_EQ(best[0], 2);
  EXPECT_EQ(best[1], -1);
  std::vector<float> rank{1, 1, 1, 1};
  limit_groups(rank, 2, 1);
  EXPECT_EQ(rank, (std::vector<float>{1, 1, kClosed, kClosed}));
  const Routing r = route(Tensor::zeros({1, 4}, DType::f32), {.top_k = 3});
  EXPECT_EQ(r.ids.to_ints(), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Routing, SoftmaxWithoutRenormalisationKeepsItsMass) {
  const Tensor logits = Tensor::from(std::vector<float>{0, std::log(3.0f)}, {1, 2});
  EXPECT_NEAR(route(logits, {.top_k = 1}).weights.to_floats()[0], 0.75f, 1e-6);
  EXPECT_NEAR(route(logits, {.top_k = 1, .renormalise = true}).weights.to_floats()[0], 1.0f, 1e-6);
}

}  // namespace
}  // namespace tessera::ops
