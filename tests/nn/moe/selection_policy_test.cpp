#include "nn/moe/selection_policy.h"

#include <gtest/gtest.h>

#include <tuple>

#include "nn/moe/selected_experts.h"
#include "nn/random_bank.h"

namespace tessera::nn {
namespace {

using namespace random_bank;

struct Layer {
  ExpertWeights weights = bank(8, 1, DType::f32);
  Router gate = router(8, 2, 7);
  Tensor x = normal({9, 32}, 3);
  TokenView view{-1, {0, 1}, {}, {{0, {0, 5}}, {1, {0, 4}}}, {5, 4}};

  Tensor apply(SelectedExperts& experts) const {
    return experts.layers.apply(0, view, x, gate, weights);
  }
};

TEST(SelectionPolicy, VanillaIsTheModelsRouterBitByBit) {
  const Layer layer;
  SelectedExperts vanilla({});
  MoeLayers plain;
  EXPECT_EQ(layer.apply(vanilla).to_floats(),
            plain.apply(0, layer.view, layer.x, layer.gate, layer.weights).to_floats());
}

TEST(SelectionPolicy, RowsShareApart) {
  const Layer layer;
  const SelectionRule rule = parse_selection("des-vote:0.25");
  SelectedExperts together(rule), alone(rule);
  together.policy->restrict_to({{0, kAllTokens}, {1, kAllTokens}});
  alone.policy->restrict_to({{1, kAllTokens}});
  const Tensor both = layer.apply(together);
  const TokenView second{-1, {1}, {}, {{1, {0, 4}}}, {4}};
  const Tensor one =
      alone.layers.apply(0, second, layer.x.slice(0, 5, 9).contiguous(), layer.gate, layer.weights);
  EXPECT_EQ(both.slice(0, 5, 9).to_floats(), one.to_floats());
}

TEST(SelectionPolicy, BlocksOfASequenceShareApart) {
  const Layer layer;
  SelectedExperts together(parse_selection("block:2,4"));
  together.policy->restrict_to({{0, kAllTokens}, {1, kAllTokens}});
  const Tensor all = layer.apply(together);
  const std::tuple<Segment, int64_t> parts[] = {
      {{0, {0, 4}}, 0}, {{0, {4, 5}}, 4}, {{1, {0, 4}}, 5}};
  for (const auto& [of, at] : parts) {
    SelectedExperts alone(parse_selection("block:2,4"));
    alone.policy->restrict_to({{of.sequence, kAllTokens}});
    const TokenView view{-1, {of.sequence}, {}, {of}, {of.ids.end}};
    const Tensor x = layer.x.slice(0, at, at + of.ids.size()).contiguous();
    EXPECT_EQ(all.slice(0, at, at + of.ids.size()).to_floats(),
              alone.layers.apply(0, view, x, layer.gate, layer.weights).to_floats());
    EXPECT_LE(alone.usage.experts_read(), 2);
  }
}

TEST(SelectionPolicy, OneCoresetForTheBatch) {
  const Layer layer;
  SelectedExperts experts(parse_selection("des-vote:0.25,scope=batch"));
  experts.policy->restrict_to({{0, kAllTokens}, {1, kAllTokens}});
  layer.apply(experts);
  EXPECT_LE(experts.usage.experts_read(), 2);
}

TEST(SelectionPolicy, TheSharedExpertIsUntouched) {
  const Layer layer;
  SelectedExperts experts(parse_selection("mc:1,1,0"));  // no token keeps a routed expert
  experts.policy->restrict_to({{0, kAllTokens}, {1, kAllTokens}});
  EXPECT_EQ(layer.apply(experts).to_floats(), layer.weights.shared_rows(layer.x).to_floats());
}

}  // namespace
}  // namespace tessera::nn
