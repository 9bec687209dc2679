#include "sample/unmasking_policies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::sample {
namespace {

// Logits over {0, 1, mask} under which token 1 has a given probability.
struct Block {
  explicit Block(const std::vector<double>& confidences, std::vector<int64_t> at = {}) {
    for (size_t i = 0; i < confidences.size(); ++i) {
      const double c = confidences[i];
      rows.push_back({0, static_cast<float>(std::log(c / (1 - c))), 50});
      in.positions.push_back(at.empty() ? int64_t(i) : at[i]);
      in.held.push_back(2);
    }
    for (const auto& row : rows) in.rows.push_back(row.data());
    in.vocabulary = 3;
    in.mask = 2;
  }
  std::vector<std::vector<float>> rows;
  OpenLogits in;
};

std::vector<int64_t> chosen(const DecodingPolicy& policy, const Block& block) {
  const auto rule = unmasking_policy(policy);
  rule->begin_block(int64_t(block.rows.size()));
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
  for (uint64_t draw = 0; draw < 4000; ++draw) second += predict(logits, 2, 1.0, draw).token;
  EXPECT_NEAR(second / 4000.0, 0.75, 0.03);
  EXPECT_EQ(predict(logits, 2, 1.0, 7).token, predict(logits, 2, 1.0, 7).token);
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
  block.in.held = {0, 0, 2, 1, 2};  // another token stands at 0 and 1, the same at 3
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
  EXPECT_EQ(rule->choose(block.in).at(0).confidence, first);  // a new block starts anew
}

}  // namespace
}  // namespace tessera::sample
