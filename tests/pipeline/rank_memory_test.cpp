#include "pipeline/rank_memory.h"

#include <gtest/gtest.h>

namespace tessera::pipeline {
namespace {

std::vector<Inspection::Rank> ranks(const std::string& plan, const parallel::Workload& workload) {
  const auto recipe = models::pipeline_of("dit_moe", {models::named_sizes()[0].second, "small"});
  RunOptions options;
  options.plan = parse_plan(plan);
  return rank_memory(recipe, options, recipe.layout(0, 0), workload);
}

TEST(RankMemory, GrowsWithWhatARankHolds) {
  const auto two = ranks("expert=2", {8, {1, 16, 16}, 2, 10}),
             four = ranks("expert=4", {8, {1, 16, 16}, 2, 10});
  ASSERT_EQ(four.size(), 4u);
  EXPECT_GT(two[0].weights, four[0].weights);
  EXPECT_NEAR(double(two[0].activations) / double(four[0].activations), 2, 0.1);
  EXPECT_EQ(two[0].tokens, 2 * four[0].tokens);
  EXPECT_GT(two[0].exchange, four[0].exchange);
}

TEST(RankMemory, CountsOnlyWhatAPlanNeeds) {
  const auto data = ranks("data=2", {2, {1, 16, 16}, 2, 10});
  EXPECT_EQ(data[0].exchange, 0);
  EXPECT_EQ(data[0].kv, 0);
  const auto shards = ranks("distrifusion=2", {1, {1, 16, 16}, 2, 10});
  EXPECT_EQ(shards[1].tokens, 256);
  EXPECT_EQ(shards[1].kv, int64_t{2} * 256 * 12 * 2 * 384 * 2) << "12 layers of keys and values";
}

TEST(RankMemory, RefusesPlansThatCannotRun) {
  EXPECT_THROW(ranks("data=3", {2, {1, 16, 16}, 2, 10}), Error);
  EXPECT_THROW(ranks("expert=2,placement=0+1", {2, {1, 16, 16}, 2, 10}), Error);
}

}  // namespace
}  // namespace tessera::pipeline
