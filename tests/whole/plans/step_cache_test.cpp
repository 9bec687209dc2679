#include <gtest/gtest.h>

#include "whole/plans/every_network.h"

// Step caches in every network: a plan changes no decision and no bit.
namespace tessera {
namespace {

constexpr int kCachedSteps = 10;

class CachedNetwork : public testing::TestWithParam<size_t> {
 protected:
  Subject subject() const { return Subject(kNetworks[GetParam()], DType::f32); }
  static Subject::Asked asked(const std::string& plan, const std::string& cache) {
    return {.plan = plan, .sampler = sample::rectified_flow(kCachedSteps), .cache = cache};
  }
};
INSTANTIATE_TEST_SUITE_P(StepCache, CachedNetwork, testing::Range<size_t>(0, std::size(kNetworks)));

size_t reused(const Subject::Ran& ran, int blocks) {
  size_t computed = 0;
  for (const auto& step : ran.computed) computed += step.size();
  return ran.computed.size() * static_cast<size_t>(blocks) - computed;
}

// A threshold with some reused steps and some computed steps.
TEST_P(CachedNetwork, GivesTheSameBitsOnAnyRanks) {
  const Subject run = subject();
  const auto whole = run({.sampler = sample::rectified_flow(kCachedSteps)}).steps;
  for (const char* cache :
       {"fbcache,threshold=0.3", "dbcache,warmup=2,threshold=2,max_continuous=2,taylor=1",
        "teacache,threshold=0.3,coefficients=1+0", "taylorseer,before=3,interval=3",
        "taylorseer,before=3,interval=3,lite=1", "magcache,threshold=1,ratios=1",
        "drift,threshold=0.5"}) {
    SCOPED_TRACE(run.name + " " + cache);
    const Subject::Ran one = run(asked("", cache));
    ASSERT_EQ(std::ssize(one.computed), kCachedSteps);
    EXPECT_FALSE(one.computed.front().empty()) << "the first step is computed";
    if (std::string(cache).starts_with("fb") || std::string(cache).starts_with("db")) {
      EXPECT_FALSE(one.computed.back().empty());
    }
    EXPECT_EQ(one.steps.size(), whole.size());
    for (const char* plan : {"cfg=2", "ulysses=2", "data=2,ulysses=2", "shard=2"}) {
      const Subject::Ran many = run(asked(plan, cache));
      EXPECT_EQ(many.computed, one.computed) << plan;
      EXPECT_EQ(many.steps, one.steps) << plan;
    }
  }
}

TEST_P(CachedNetwork, BranchesThatDecideApartDoSoOnAnyRanks) {
  const Subject run = subject();
  for (const std::string cache :
       {"fbcache,threshold=0.3", "dbcache,warmup=2,threshold=0.4,taylor=1",
        "taylorseer,before=3,interval=3", "drift,threshold=0.5"}) {
    SCOPED_TRACE(run.name + " " + cache);
    const Subject::Ran one = run(asked("", cache + ",branches=apart"));
    ASSERT_EQ(std::ssize(one.computed), kCachedSteps);
    ASSERT_EQ(std::ssize(one.negative), kCachedSteps);
    if (cache.starts_with("taylor")) {
      EXPECT_EQ(one.steps, run(asked("", cache)).steps) << "no data decide";
    }
    for (const char* plan : {"cfg=2", "ulysses=2", "cfg=2,ulysses=2", "cfg=2,shard=2"}) {
      const Subject::Ran many = run(asked(plan, cache + ",branches=apart"));
      EXPECT_EQ(many.computed, one.computed) << plan;
      EXPECT_EQ(many.negative, one.negative) << plan;
      EXPECT_EQ(many.steps, one.steps) << plan;
    }
  }
}

TEST_P(CachedNetwork, TensorAndRingMakeTheirOwnBitsAndOneDecision) {
  const Subject run = subject();
  const char* const cache = "fbcache,threshold=0.3";
  for (const auto& [few, more] :
       {std::pair{"tensor=2", "cfg=2,tensor=2"}, std::pair{"ring=2", "cfg=2,ring=2"}}) {
    const Subject::Ran a = run(asked(few, cache)), b = run(asked(more, cache));
    EXPECT_EQ(a.computed, b.computed) << run.name << " " << more;
    EXPECT_EQ(a.steps, b.steps) << run.name << " " << more;
  }
}

TEST_P(CachedNetwork, ReusesStepsAndStaysNearTheRun) {
  const Subject run = subject();
  const int blocks = run.geometry().blocks;
  const Subject::Ran all = run(asked("", "dbcache,warmup=0,threshold=2"));
  EXPECT_GT(reused(all, blocks), 0u) << run.name;
  const Subject::Ran none = run(asked("", "fbcache,threshold=0"));
  EXPECT_EQ(none.steps, run({.sampler = sample::rectified_flow(kCachedSteps)}).steps) << run.name;
}

}  // namespace
}  // namespace tessera
