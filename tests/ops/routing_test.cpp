#include "ops/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tensor/scope.h"
#include "tessera/error.h"

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

// Tokens by expert, and how often a token has an expert twice.
std::pair<std::vector<int64_t>, int64_t> loads(const Routing& routing, int64_t experts) {
  std::vector<int64_t> load(static_cast<size_t>(experts));
  int64_t twice = 0;
  const auto ids = routing.ids.to_ints();
  for (size_t i = 0; i < ids.size(); ++i) ++load[static_cast<size_t>(ids[i])];
  for (size_t i = 1; i < ids.size(); i += 2) twice += ids[i] == ids[i - 1];
  return {load, twice};
}

TEST(Routing, OnMetaOneIsMadeUpFromWhatTheScopeAssumes) {
  tensor::Scope scope;
  const auto made = [&](int64_t tokens) {
    const tensor::BindScope bind(scope);
    return loads(
        host_routing(
            route(Tensor::empty({tokens, 4}, DType::f32, tensor::Device::meta), {.top_k = 2}), 4),
        4);
  };
  EXPECT_EQ(made(64), (std::pair{std::vector<int64_t>{32, 32, 32, 32}, int64_t{0}}));
  scope.assumptions.touched_experts = 0.5;
  EXPECT_EQ(made(64), (std::pair{std::vector<int64_t>{64, 64, 0, 0}, int64_t{0}}));
  scope.assumptions.expert_load = {3, 1, 0, 4};
  EXPECT_EQ(made(64), (std::pair{std::vector<int64_t>{48, 16, 0, 64}, int64_t{0}}));
  scope.assumptions.expert_load = {2, 1, 1, 0};  // half of all tokens; each also has another expert
  for (const int64_t tokens : {1, 2, 3, 127}) EXPECT_LE(made(tokens).first[0], tokens) << tokens;
  EXPECT_EQ(made(0).second, 0);
  scope.assumptions.expert_load = {1, 1, 1, 1, 1};
  EXPECT_THROW(made(1), Error);
}

TEST(Routing, OnTheHostItIsWhatItIs) {
  const Routing real = route(Tensor::zeros({1, 4}, DType::f32), {.top_k = 3});
  EXPECT_EQ(host_routing(real, 4).ids.data<int32_t>(), real.ids.data<int32_t>());
}

}  // namespace
}  // namespace tessera::ops
