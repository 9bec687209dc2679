#include "nn/moe/expert_weights.h"

#include <gtest/gtest.h>

#include "nn/random_bank.h"
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

TEST(ExpertWeights, WithoutASharedExpertThereIsNoTensor) {
  EXPECT_FALSE(ExpertWeights{}.shared_rows(normal({4, 32}, 2)).defined());
}

}  // namespace
}  // namespace tessera::nn
