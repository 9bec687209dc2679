#include "ops/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::ops {
namespace {

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

TEST(Routing, TiesGoToTheLowestIndex) {
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
