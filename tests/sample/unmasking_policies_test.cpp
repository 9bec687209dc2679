#include "sample/unmasking_policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tessera::sample {
namespace {

// Logits over {0, 1, mask} under which token 1 has a given probability.
struct Block {
  explicit Block(const std::vector<double>& confidences, std::vector<int64_t> at = {}) {
    for (size_t i = 0; i < confidences.size(); ++i) {
      const double c = confidences[i];
      flat.insert(flat.end(), {0, static_cast<float>(std::log(c / (1 - c))), 50});
      in.positions.push_back(at.empty() ? int64_t(i) : at[i]);
      in.held.push_back(2);
    }
    in.logits =
        tensor::Tensor::from(std::span<const float>(flat), {int64_t(confidences.size()), 3});
    in.mask = 2;
  }
  void say(const std::vector<float>& logits) {  // at the first position
    std::ranges::copy(logits, in.logits.data<float>());
  }
  std::vector<float> flat;
  OpenLogits in;
};

std::vector<int64_t> chosen(const DecodingPolicy& policy, const Block& block) {
  const auto rule = unmasking_policy(policy);
  rule->begin_block(int64_t(block.in.positions.size()));
  std::vector<int64_t> positions;
  for (const auto& p : rule->choose(block.in)) positions.push_back(p.position);
  return positions;
}

using Rule = DecodingPolicy::Rule;

TEST(UnmaskingPolicies, TheMaskIsNeverPredictedAndTiesGoToTheLowestId) {
  const std::vector<float> logits{1, 3, 3, 90};
  const Prediction p = predict(logits, 3);
  EXPECT_EQ(p.token, 1);
  EXPECT_NEAR(p.confidence, 1 / (2 + std::exp(-2.0)), 1e-12);
}

TEST(UnmaskingPolicies, DrawsFollowTheModel) {
  const std::vector<float> logits{0, std::log(3.0f), 0};  // 1 : 3, the last is the mask
  int second = 0;
  for (uint64_t draw = 0; draw < 4000; ++draw) second += predict(logits, 2, {1.0, draw}).token;
  EXPECT_NEAR(second / 4000.0, 0.75, 0.03);
  EXPECT_EQ(predict(logits, 2, {1.0, 7}).token, predict(logits, 2, {1.0, 7}).token);
}

TEST(UnmaskingPolicies, AreDrawnFromTheLikeliest) {
  // 4 : 2 : mask : 1 : 1
  const std::vector<float> logits{std::log(4.0f), std::log(2.0f), 90, 0, 0};
  const auto from = [&](double temperature, int64_t top_k, double top_p) {
    return drawn_from(logits, 2, {temperature, 0, top_k, top_p});
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(from(1, 0, 1), (Ids{0, 1, 3, 4}));
  EXPECT_EQ(from(1, 3, 1), (Ids{0, 1, 3}));  // the lowest of equals
  EXPECT_EQ(from(1, 9, 1), (Ids{0, 1, 3, 4}));
  EXPECT_EQ(from(1, 0, 0.49), (Ids{0}));
  EXPECT_EQ(from(1, 0, 0.6), (Ids{0, 1}));
  EXPECT_EQ(from(1, 2, 0.6), (Ids{0}));       // 4 of 6: the probability is among those two
  EXPECT_EQ(from(10, 0, 0.49), (Ids{0, 1}));  // at the temperature they are nearly alike
  EXPECT_EQ(from(1, 0, 1e-9), (Ids{0}));
}

TEST(UnmaskingPolicies, ManyTokensOfANucleusAreFoundInTheirOrder) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float((i * 1237) % 5000) * 1e-3f;
  const auto kept = drawn_from(logits, -1, {1, 0, 0, 0.9});
  double all = 0, inside = 0, least = 1e9, most_outside = 0;
  for (const float l : logits) all += std::exp(double(l));
  std::vector<bool> in(logits.size());
  for (const int32_t id : kept) {
    in[size_t(id)] = true;
    inside += std::exp(double(logits[size_t(id)]));
    least = std::min(least, double(logits[size_t(id)]));
  }
  for (size_t i = 0; i < logits.size(); ++i)
    if (!in[i]) most_outside = std::max(most_outside, double(logits[i]));
  EXPECT_GT(least, most_outside);
  EXPECT_GE(inside, 0.9 * all);
  EXPECT_LT(inside - std::exp(least), 0.9 * all);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
}

TEST(UnmaskingPolicies, WhatIsDrawnFromFewIsAsSureAsTheModel) {
  const std::vector<float> logits{0, std::log(3.0f), std::log(0.5f), 0};  // the last is the mask
  const Prediction one = predict(logits, 3, {1.0, 5, 1});
  EXPECT_EQ(one.token, 1);
  EXPECT_NEAR(one.confidence, 3 / 4.5, 1e-6);  // a nucleus of a single token has confidence 1
  int second = 0, third = 0;
  for (uint64_t draw = 0; draw < 4000; ++draw) {
    const int32_t token = predict(logits, 3, {1.0, draw, 2}).token;
    EXPECT_NE(token, 2);
    second += token == 1;
    // Noise belongs to a token: excluded tokens change no other draw.
    if (const int32_t free = predict(logits, 3, {1.0, draw}).token; free != 2)
      EXPECT_EQ(free, token);
    else
      ++third;
  }
  EXPECT_NEAR(second / 4000.0, 0.75, 0.03);
  EXPECT_GT(third, 200);
}

TEST(UnmaskingPolicies, APenaltyMakesWhatStandsLessLikely) {
  DecodingPolicy policy{.threshold = 0.75};
  policy.repetition_penalty = 2;
  Block block({0.8, 0.7}, {4, 5});
  const auto choose = [&](std::vector<int32_t> said) {
    block.in.said = std::move(said);
    const auto rule = unmasking_policy(policy);
    rule->begin_block(2);
    return rule->choose(block.in);
  };
  EXPECT_EQ(choose({}).at(0).confidence, unmasking_policy({})->choose(block.in).at(0).confidence);
  // log 4 for token 1 becomes log 2: 2 of 3.
  EXPECT_NEAR(choose({1}).at(0).confidence, 2.0 / 3, 1e-6);
  EXPECT_NEAR(choose({1, 1, 1}).at(0).confidence, 2.0 / 3, 1e-6);  // once, however often
  EXPECT_EQ(choose({0}).at(0).token, 1);                           // a logit of 0 stays 0
  block.say({-1, 1, 50});
  policy.repetition_penalty = 0.5;  // below 1 present tokens are favoured
  EXPECT_NEAR(choose({0}).at(0).confidence, 1 / (1 + std::exp(-1.5)), 1e-6);
}

TEST(UnmaskingPolicies, WhatStandsInItsPlaceAloneIsNoRepetition) {
  DecodingPolicy policy{.rule = Rule::edit, .steps = 2, .threshold = 0.9, .block = 2};
  policy.editing = 0.5;
  policy.repetition_penalty = 100;
  Block block({0.7});
  block.in.held = {1};
  block.in.said = {1};
  EXPECT_TRUE(chosen(policy, block).empty());
  block.say({-2, 1, 50});
  block.in.said = {1, 1};  // elsewhere, too: 0.01 against -2 stays likeliest
  EXPECT_TRUE(chosen(policy, block).empty());
  block.say({0.5, 1, 50});
  EXPECT_EQ(chosen(policy, block), (std::vector<int64_t>{0}));
}

TEST(UnmaskingPolicies, SharesPutLargerPartsFirst) {
  EXPECT_EQ(share_of(8, 3, 0), 3);
  EXPECT_EQ(share_of(8, 3, 2), 2);
  EXPECT_EQ(share_of(2, 8, 5), 0);
  EXPECT_EQ(share_of(8, 3, 3), 0);
}

TEST(UnmaskingPolicies, StepsTakeTheirShareOfTheSurest) {
  EXPECT_EQ(chosen({.rule = Rule::steps, .steps = 2}, Block({0.6, 0.9, 0.7, 0.8})),
            (std::vector<int64_t>{1, 3}));
}

TEST(UnmaskingPolicies, AThresholdTakesAllAboveItAndTheBestAtLeast) {
  EXPECT_EQ(chosen({.threshold = 0.75}, Block({0.6, 0.9, 0.7, 0.8})), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(chosen({.threshold = 0.95}, Block({0.6, 0.9, 0.9})), (std::vector<int64_t>{1}));
}

TEST(UnmaskingPolicies, AScheduleCommitsItsShareWhereTheThresholdGivesFewer) {
  EXPECT_EQ(chosen({.steps = 2, .threshold = 0.85, .block = 4}, Block({0.6, 0.9, 0.7, 0.8})),
            (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(chosen({.steps = 4, .threshold = 0.65, .block = 4}, Block({0.6, 0.9, 0.7, 0.8})),
            (std::vector<int64_t>{1, 2, 3}));
}

TEST(UnmaskingPolicies, FactorTakesTheLongestPrefix) {
  // n = 2: 1 - 1/3, n = 3: 1 - 1/4, n = 4: 1 - 1/5
  EXPECT_EQ(chosen({.rule = Rule::factor}, Block({0.76, 0.9, 0.7, 0.68})),
            (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(chosen({.rule = Rule::factor, .commit_last_failing = true}, Block({0.76, 0.9, 0.7})),
            (std::vector<int64_t>{0, 1, 2}));
}

TEST(UnmaskingPolicies, HierarchyTakesTheBestOfEachRun) {
  const Block two_runs({0.6, 0.7, 0.65, 0.55}, {3, 4, 7, 8});
  EXPECT_EQ(chosen({.rule = Rule::hierarchy, .threshold = 0.9, .low = 0.62}, two_runs),
            (std::vector<int64_t>{4, 7}));
  EXPECT_EQ(chosen({.rule = Rule::hierarchy, .threshold = 0.9, .low = 0.66}, two_runs),
            (std::vector<int64_t>{4}));
}

TEST(UnmaskingPolicies, EditFillsMasksAndReplacesWhatAnotherBeats) {
  DecodingPolicy policy{.rule = Rule::edit, .steps = 4, .threshold = 0.85, .block = 4};
  policy.editing = 0.65;
  Block block({0.7, 0.6, 0.9, 0.7, 0.8});
  block.in.held = {0, 0, 2, 1, 2};  // other tokens at 0 and 1, the same at 3
  EXPECT_EQ(chosen(policy, block), (std::vector<int64_t>{0, 2}));
  block.in.held = {1, 0, 1, 1, 1};
  EXPECT_EQ(chosen(policy, block), (std::vector<int64_t>{}));  // 0.6 replaces nothing
}

TEST(UnmaskingPolicies, CreditLiftsWhatIsSaidAgain) {
  const auto rule = unmasking_policy({.rule = Rule::credit, .threshold = 0.9});
  const Block block({0.8, 0.85});
  rule->begin_block(2);
  const double first = rule->choose(block.in).at(0).confidence;
  const double second = rule->choose(block.in).at(0).confidence;
  EXPECT_GT(second, first);
  rule->begin_block(2);
  EXPECT_EQ(rule->choose(block.in).at(0).confidence, first);  // a new block starts without credit
}

}  // namespace
}  // namespace tessera::sample
