#include "nn/moe/capacity_policy.h"

#include <gtest/gtest.h>

#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"

namespace tessera::nn {
namespace {

using namespace random_bank;

const TokenView kView{-1, {0}, {}, {{0, {0, 6}}}, {6}};

// Six tokens over three experts, the first choice 0 for all but the fourth.
Tensor logits() {
  return Tensor::from(std::vector<float>{3, 2, 1, 3, 1, 2, 3, 2, 1, 1, 3, 2, 3, 1, 2, 3, 2, 1},
                      {6, 3});
}

ops::Routing choose(int64_t capacity, int top_k, bool renormalise = false) {
  const CapacityPolicy policy(std::make_shared<VanillaPolicy>(), capacity);
  return policy.choose({0, {}, kView}, {}, logits(), {.top_k = top_k, .renormalise = renormalise});
}

TEST(CapacityPolicy, LaterTokensOfAFullExpertAreDropped) {
  EXPECT_EQ(choose(2, 1).ids.to_ints(), (std::vector<int64_t>{0, 0, -1, 1, -1, -1}));
  EXPECT_EQ(choose(1, 2).ids.to_ints(),
            (std::vector<int64_t>{0, 1, -1, 2, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST(CapacityPolicy, NoOtherWeightChanges) {
  for (const bool renormalise : {false, true}) {
    const ops::Routing all = ops::route(logits(), {.top_k = 2, .renormalise = renormalise}),
                       kept = choose(3, 2, renormalise);
    for (int64_t i = 0; i < kept.ids.elements(); ++i) {
      const bool dropped = kept.ids.data<int32_t>()[i] < 0;
      EXPECT_EQ(kept.weights.data<float>()[i], dropped ? 0.0f : all.weights.data<float>()[i]);
      if (!dropped) {
        EXPECT_EQ(kept.ids.data<int32_t>()[i], all.ids.data<int32_t>()[i]);
      }
    }
  }
}

TEST(CapacityPolicy, NoneIsKeptOfNothingAndAllOfEnough) {
  EXPECT_EQ(choose(0, 3).ids.to_ints(), std::vector<int64_t>(18, -1));
  const ops::Routing all = ops::route(logits(), {.top_k = 3});
  EXPECT_EQ(choose(6, 3).ids.to_ints(), all.ids.to_ints());
  EXPECT_EQ(choose(6, 3).weights.to_floats(), all.weights.to_floats());
}

TEST(CapacityPolicy, NoTokensAreNoChoice) {
  const CapacityPolicy policy(std::make_shared<VanillaPolicy>(), 1);
  const TokenView view{-1, {0}, {}, {}, {}};
  const ops::Routing none =
      policy.choose({0, {}, view}, {}, Tensor::zeros({0, 3}, DType::f32), {.top_k = 2});
  EXPECT_EQ(none.ids.shape(), tensor::Shape({0, 2}));
}

TEST(CapacityPolicy, OnMetaThereAreShapes) {
  const CapacityPolicy policy(std::make_shared<VanillaPolicy>(), 1);
  const ops::Routing some = policy.choose(
      {0, {}, kView}, {}, Tensor::empty({6, 3}, DType::f32, tensor::Device::meta), {.top_k = 2});
  EXPECT_TRUE(some.ids.is_meta());
  EXPECT_EQ(some.ids.shape(), tensor::Shape({6, 2}));
}

TEST(CapacityPolicy, ATokenWithoutExpertHasAZeroRow) {
  MoeLayers layers(std::make_shared<CapacityPolicy>(std::make_shared<VanillaPolicy>(), 0),
                   std::make_unique<LocalBackend>());
  ExpertWeights routed = bank(3, 1, DType::f32);
  routed.shared = {};
  const Tensor out = layers.apply(0, kView, normal({6, 32}, 2), router(3, 2, 5), routed);
  EXPECT_EQ(out.to_floats(), std::vector<float>(6 * 32, 0.0f));
}

}  // namespace
}  // namespace tessera::nn
