#include "planner/published_case.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::planner {
namespace {

TEST(PublishedCase, ReadsARow) {
  const PublishedCase run = case_of({{"model", "FLUX.1-dev"},
                                     {"hardware", "L40"},
                                     {"world", 8},
                                     {"plan", {{"cfg", 2}, {"pipefusion", 4}}},
                                     {"compile", true},
                                     {"cond", {{"warmup_steps", 2}}}});
  EXPECT_EQ(run.ranks, 8);
  EXPECT_TRUE(run.compiled);
  const Plan plan = plan_of(run);
  EXPECT_EQ(plan.world(), 8);
  EXPECT_EQ(plan.warmup, 2);
  EXPECT_EQ(PublishedRuns::cluster(run).name, "L40");
}

TEST(PublishedCase, RefusesWhatIsNoRow) {
  EXPECT_THROW(case_of(base::Json::array()), Error);
  EXPECT_THROW(case_of({{"world", "many"}}), Error);
  EXPECT_THROW(case_of({{"plan", {{"cfg", -1}}}}), Error);
  EXPECT_THROW(plan_of(case_of({{"plan", {{"magic", 2}}}})), Error);
  EXPECT_THROW(PublishedRuns::cluster(case_of({{"hardware", "abacus"}})), Error);
}

}  // namespace
}  // namespace tessera::planner
