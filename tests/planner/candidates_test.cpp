#include "planner/candidates.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::planner {
namespace {

std::set<std::string> texts(const Choice& choice) {
  std::set<std::string> found;
  for (const Plan& plan : candidates(choice)) found.insert(to_string(plan));
  return found;
}

TEST(Candidates, AreForAllRanksAndDifferent) {
  const Choice choice{8, 1, true, true, 0, 28};
  const auto all = candidates(choice);
  for (const Plan& plan : all) EXPECT_EQ(plan.ranks(), 8) << to_string(plan);
  EXPECT_EQ(texts(choice).size(), all.size());
  for (const char* plan : {"ulysses=8", "cfg=2,ulysses=4", "cfg=2,pipefusion=4,patches=8",
                           "tensor=8", "distrifusion=8", "shard=8", "ring=2,ulysses=4"})
    EXPECT_EQ(texts(choice).count(to_string(parse_plan(plan))), 1u) << plan;
}

TEST(Candidates, OfExactPlansNoneIsStale) {
  for (const Plan& plan : candidates({8, 4, true, false, 8, 28}))
    EXPECT_FALSE(plan.stale()) << to_string(plan);
}

TEST(Candidates, NoRankIsWithoutWork) {
  for (const Plan& plan : candidates({8, 2, false, true, 0, 4})) {
    EXPECT_LE(plan.data, 2);
    EXPECT_EQ(plan.cfg, 1);
    EXPECT_LE(plan.pipefusion, 4);
  }
}

TEST(Candidates, ShareExpertsWhereThereAreSome) {
  EXPECT_EQ(texts({2, 2, true, false, 8, 4}).count("data=2,expert=2"), 1u);
  EXPECT_EQ(texts({2, 2, true, false, 0, 4}).count("data=2,expert=2"), 0u);
}

TEST(Candidates, StaleExpertsAreFusedOnCpusToo) {
  Choice choice{2, 2, true, true, 8, 4};
  const std::string fused = to_string(parse_plan("data=2,expert=2,schedule=interweaved,moe=fused"));
  EXPECT_EQ(texts(choice).count(fused), 0u);
  choice.fused = true;
  EXPECT_EQ(texts(choice).count(fused), 1u);
  EXPECT_TRUE(problems(parse_plan(fused), 2).empty());
  choice.stale = false;
  EXPECT_EQ(texts(choice).count(fused), 0u);
}

}  // namespace
}  // namespace tessera::planner
