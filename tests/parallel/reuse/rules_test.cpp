#include "parallel/reuse/rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/setup.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

TEST(StepCacheRules, RefusesWhatDoesNotFitTheModel) {
  nn::Geometry geometry;
  geometry.blocks = 4;
  const auto refused = [&](const std::string& rule, int steps) {
    try {
      check_step_cache(parse_step_cache(rule), geometry, steps);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("dbcache,Fn=4,Bn=1", 5).find("4 blocks"), std::string::npos);
  EXPECT_EQ(refused("dbcache,Fn=3,Bn=1", 5), "");
  EXPECT_NE(refused("dbcache,mask=110", 5).find("3 digits for 5 steps"), std::string::npos);
  EXPECT_EQ(refused("dbcache,mask=110", 3), "");
}

TEST(StepCacheRules, TheComputedShareIsKnownWhereNoDataDecide) {
  const auto share = [](const std::string& text, int steps) {
    return computed_share(parse_step_cache(text), 4, steps);
  };
  // Steps 0, 1, 2 and 4 of 6.
  EXPECT_DOUBLE_EQ(*share("taylorseer,before=3,interval=2,lite=1", 6), 4.0 / 6);
  // Two of four steps are computed, the others run a block of four.
  EXPECT_DOUBLE_EQ(*share("dbcache,policy=static,mask=1010,warmup=0", 4), (2 + 2 * 0.25) / 4);
  // Ratios of 1 have no error: after the start, two reused steps follow each computed step.
  EXPECT_DOUBLE_EQ(*share("magcache,ratios=1+1,retention=0.25,max_skip=2", 8), (2 + 2.0) / 8);
  EXPECT_FALSE(share("fbcache", 4));
  EXPECT_FALSE(share("dbcache", 4));
  EXPECT_FALSE(share("taylorseer", 4));
  EXPECT_FALSE(share("drift", 4));
}

TEST(StepCacheRules, PlansWithPartsOfStepsAreRefusedByName) {
  nn::Geometry geometry;
  geometry.blocks = 4;
  geometry.attention.resize(4, {.heads = 4, .kv_heads = 4, .head_dim = 8});
  Workload work{.samples = 4, .grid = {1, 8, 8}, .branches = 2, .steps = 5};
  work.step_cache = parse_step_cache("fbcache");
  for (const auto& [plan, name] :
       std::vector<std::pair<const char*, const char*>>{{"pipefusion=2", "pipefusion=2"},
                                                        {"patches=2", "patches=2"},
                                                        {"distrifusion=2", "distrifusion=2"}}) {
    const auto found = problems(parse_plan(plan), geometry, work);
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const std::string& one) {
      return one.find("`cache` fbcache") != std::string::npos &&
             one.find(name) != std::string::npos;
    })) << plan;
  }
  for (const char* plan : {"", "cfg=2", "data=2", "ulysses=2", "ring=2", "tensor=2", "shard=2"})
    EXPECT_TRUE(problems(parse_plan(plan), geometry, work).empty()) << plan;
}

}  // namespace
}  // namespace tessera::parallel
