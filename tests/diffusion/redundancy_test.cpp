#include "diffusion/redundancy.h"

#include <gtest/gtest.h>

#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"

namespace tessera::diffusion {
namespace {

using nn::random_bank::normal;
using tensor::DType;
using tensor::Tensor;

constexpr int kExperts = 4;
constexpr int64_t kTokens = 24;

nn::ExpertWeights bank() { return nn::random_bank::bank(kExperts, 0, DType::f32); }
nn::Router router() { return nn::random_bank::router(kExperts, 2, 77); }

TEST(RedundancyProbe, ComparesNeighbouringSteps) {
  RedundancyProbe probe;
  nn::MoeLayers layers;
  layers.log().watch([&](const nn::MoeWork& work) { probe.see(work); });
  const Tensor x = normal({kTokens, 32}, 5), other = normal({kTokens, 32}, 6);
  const Tensor inputs[] = {x, x, other};
  for (int step = 0; step < 3; ++step) {
    layers.begin_step({step, 3, true, true});
    for (int layer : {0, 3}) layers.apply(layer, {}, inputs[step], router(), bank());
  }
  ASSERT_EQ(probe.steps().size(), 4u);
  EXPECT_EQ(probe.steps()[0].step, 1);
  EXPECT_EQ(probe.steps()[1].layer, 3);
  EXPECT_EQ(probe.steps()[0].same_experts, 1);
  EXPECT_NEAR(probe.steps()[0].outputs, 1, 1e-9);
  EXPECT_LT(probe.steps()[2].same_experts, 0.7) << "unrelated tokens";
  EXPECT_LT(probe.steps()[2].outputs, 0.7);
  int64_t rows = 0;
  double error = 0;
  for (const Report::StaleError& bin : probe.stale_errors()) {
    EXPECT_LT(bin.lowest_score, bin.highest_score);
    rows += bin.assignments;
    error += bin.error;
  }
  EXPECT_GE(rows, 2 * 2 * kTokens) << "all rows of the second step, in both layers";
  EXPECT_GT(error, 0);
  layers.begin_step({0, 1, true, true});
  layers.apply(0, {}, x, router(), bank());
  EXPECT_EQ(probe.steps().size(), 4u) << "a new run has no step before its first";
}

}  // namespace
}  // namespace tessera::diffusion
