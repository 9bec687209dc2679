#include "nn/moe/sequence_usage.h"

#include <gtest/gtest.h>

#include "nn/moe/selected_experts.h"
#include "nn/random_bank.h"

namespace tessera::nn {
namespace {

using namespace random_bank;

TEST(SequenceUsage, CountsRowsApartAndWhatTheyReadTogether) {
  const ExpertWeights weights = bank(8, 1, DType::f32);
  const Tensor x = normal({9, 32}, 3);
  const TokenView view{-1, {0, 1, 4}, {}, {{0, {0, 5}}, {1, {0, 4}}}, {5, 4}};
  SelectedExperts experts(parse_selection("des-vote:0.25"));
  experts.policy->restrict_to({{0, kAllTokens}, {1, kAllTokens}});
  for (int site : {0, 1}) experts.layers.apply(site, view, x, router(8, 2, 7), weights);
  const auto uses = experts.usage.take();
  ASSERT_EQ(uses.size(), 6u) << "three sequences in two layers; one sequence has no token here";
  EXPECT_EQ(uses[1].sequence, 1);
  EXPECT_EQ(uses[1].tokens, 4);
  EXPECT_EQ(uses[3].site, 1);
  EXPECT_LE(uses[0].distinct, 2);
  EXPECT_GE(uses[0].distinct, 1);
  EXPECT_EQ(uses[2].tokens, 0);
  EXPECT_EQ(uses[2].distinct, 0);
  EXPECT_LE(experts.usage.experts_read(), 2 * 4);
  EXPECT_GE(experts.usage.experts_read(), 2 * uses[0].distinct);
  EXPECT_TRUE(experts.usage.take().empty());
}

}  // namespace
}  // namespace tessera::nn
