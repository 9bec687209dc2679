#include "nn/selective_experts.h"

#include <gtest/gtest.h>

#include <random>

#include "nn/local.h"

namespace tessera::nn {
namespace {

Tensor normal(const tensor::Shape& shape, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(rng);
  return x;
}

struct Layer {
  std::shared_ptr<ExpertWeightSet> bank = std::make_shared<ExpertWeightSet>();
  Router router{ops::pack_weight(normal({8, 16}, 7), DType::f32), {.top_k = 2}};
  Tensor x = normal({9, 16}, 3);
  TokenView view{-1, {0, 1}, {}, {{0, {0, 5}}, {1, {0, 4}}}, {5, 4}};
  Layer() {
    for (uint32_t e = 0; e < 8; ++e)
      bank->routed.push_back(
          {ops::pack_paired_weight(normal({24, 16}, 30 + e), normal({24, 16}, 40 + e), DType::f32),
           ops::pack_weight(normal({16, 24}, 50 + e), DType::f32)});
  }
};

TEST(SelectiveExperts, VanillaIsLocalBitByBit) {
  Layer layer;
  SelectiveExperts vanilla({});
  LocalExperts local;
  EXPECT_EQ(vanilla.apply(0, layer.view, layer.x, layer.router, layer.bank).to_floats(),
            local.apply(0, layer.view, layer.x, layer.router, layer.bank).to_floats());
}

TEST(SelectiveExperts, RowsShareApartAndAreCountedApart) {
  Layer layer;
  const SelectionRule rule = parse_selection("des-vote:0.25");
  SelectiveExperts together(rule), alone(rule);
  together.restrict_to({0, 1});
  alone.restrict_to({1});
  const Tensor both = together.apply(0, layer.view, layer.x, layer.router, layer.bank);
  const TokenView second{-1, {1}, {}, {{1, {0, 4}}}, {4}};
  const Tensor one =
      alone.apply(0, second, layer.x.slice(0, 5, 9).contiguous(), layer.router, layer.bank);
  EXPECT_EQ(both.slice(0, 5, 9).to_floats(), one.to_floats());
  const auto uses = together.take_uses();
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[1].row, 1);
  EXPECT_LE(uses[0].distinct, 2);
  EXPECT_LE(together.experts_read(), 4);
  EXPECT_TRUE(together.take_uses().empty());
}

TEST(SelectiveExperts, OneCoresetForTheBatch) {
  Layer layer;
  SelectiveExperts experts(parse_selection("des-vote:0.25,scope=batch"));
  experts.restrict_to({0, 1});
  experts.apply(0, layer.view, layer.x, layer.router, layer.bank);
  EXPECT_LE(experts.experts_read(), 2);
}

TEST(SelectiveExperts, TheSharedExpertIsUntouched) {
  Layer layer;
  SelectiveExperts experts(parse_selection("mc:1,1,0"));  // no token keeps a routed expert
  experts.restrict_to({0, 1});
  layer.bank->shared = layer.bank->routed[0];
  EXPECT_EQ(experts.apply(0, layer.view, layer.x, layer.router, layer.bank).to_floats(),
            shared_expert(layer.x, *layer.bank).to_floats());
}

}  // namespace
}  // namespace tessera::nn
