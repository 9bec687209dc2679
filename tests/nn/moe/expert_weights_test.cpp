#include "nn/moe/expert_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/counting_weights.h"
#include "nn/random_bank.h"
#include "nn/sharded_weights.h"
#include "ops/elementwise.h"

namespace tessera::nn {
namespace {

using namespace random_bank;

TEST(ExpertWeights, TheSharedExpertIsAnExpertOfAllTokens) {
  const ExpertWeights weights = bank(3, 1, DType::f32);
  EXPECT_EQ(weights.experts(), 3);
  const Tensor x = normal({4, 32}, 2);
  const Tensor ids = Tensor::zeros({4, 1}, DType::i32);
  EXPECT_EQ(weights.shared_rows(x).to_floats(),
            ops::expert_rows(x, {ids, {}}, {weights.shared}).to_floats());
}

TEST(ExpertWeights, ASharedExpertHasAnyActivationAndBiases) {
  ExpertWeights weights;
  weights.shared = {ops::pack_weight(normal({16, 32}, 1, 0.2f), DType::f32),
                    ops::pack_weight(normal({32, 16}, 2, 0.2f), DType::f32),
                    ops::Activation::gelu_erf, normal({16}, 3), normal({32}, 4)};
  const Tensor x = normal({4, 32}, 5);
  const Tensor ids = Tensor::zeros({4, 1}, DType::i32);
  EXPECT_EQ(weights.shared_rows(x).to_floats(),
            ops::expert_rows(x, {ids, {}}, {weights.shared}).to_floats());
}

TEST(ExpertWeights, ShardsOfAnExpertAddUpToIt) {
  const CountingWeights all;
  const Tensor x = normal({3, 8}, 4), ids = Tensor::zeros({3, 1}, DType::i32);
  const auto rows = [&](const Shard& shard) {
    const ops::Expert one = load_expert(ShardedWeights(all, shard), "e.", 5, 8, DType::f32);
    return ops::expert_rows(x, {ids, {}}, {one}).to_floats();
  };
  const auto whole = rows({}), first = rows({0, 2}), second = rows({1, 2});
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(first[i] + second[i], whole[i], 1e-4 * std::abs(whole[i]));
}

TEST(ExpertWeights, WithoutASharedExpertThereIsNoTensor) {
  EXPECT_FALSE(ExpertWeights{}.shared_rows(normal({4, 32}, 2)).defined());
}

}  // namespace
}  // namespace tessera::nn
