#include "nn/moe/backend.h"

#include <gtest/gtest.h>

#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"

namespace tessera::nn {
namespace {

using namespace random_bank;

const TokenView kView{-1, {0}, {}, {{0, {0, 9}}}, {9}};

TEST(LocalBackend, AddsTheSharedExpertAndCountsWhatItTouched) {
  MoeLayers layers;
  const Tensor x = normal({9, 32}, 3);
  const Router route = router(4, 2, 7);
  const ExpertWeights whole = bank(4, 1, DType::f32);
  ExpertWeights routed = whole;
  routed.shared = {};
  layers.begin_step({3, 5, true, true});
  const auto without = layers.apply(1, kView, x, route, routed).to_floats();
  const auto with = layers.apply(1, kView, x, route, whole).to_floats();
  const auto shared = whole.shared_rows(x).to_floats();
  for (size_t i = 0; i < with.size(); ++i) EXPECT_NEAR(with[i], without[i] + shared[i], 1e-4);
  const auto& events = layers.log().events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].step, 3);
  EXPECT_EQ(events[0].site, 1);
  EXPECT_EQ(events[0].tokens, 9);
  EXPECT_EQ(events[0].assignments, (std::vector<int64_t>{18}));
  EXPECT_GE(events[0].distinct, 2);
  EXPECT_LE(events[0].distinct, 4);
}

TEST(LocalBackend, ShowsObserversTheRowsThatItAdds) {
  MoeLayers layers;
  const Tensor x = normal({9, 32}, 3);
  const Router route = router(4, 2, 7);
  ExpertWeights weights = bank(4, 1, DType::f32);
  weights.shared = {};
  std::vector<float> seen;
  EXPECT_FALSE(layers.log().watched());
  layers.log().watch([&](const MoeWork& work) {
    EXPECT_EQ(work.call.site, 2);
    EXPECT_EQ(work.gate.router().logits(work.tokens).to_floats(), route.logits(x).to_floats());
    seen = ops::combine_rows(work.rows, work.routing.weights).to_floats();
  });
  EXPECT_TRUE(layers.log().watched());
  EXPECT_EQ(layers.apply(2, kView, x, route, weights).to_floats(), seen);
}

}  // namespace
}  // namespace tessera::nn
